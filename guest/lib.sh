# shellcheck shell=bash disable=SC2034
# Helpers for jobs in the guest: `. /lib.sh`.
#
# Cases and slices. A job's disks are big; a case file has one array per line, and member M of the array on line K (from 0,
# comments and blank lines not counted) is a *slice* of disk M: sectors K*SLICE to (K+1)*SLICE, or fewer if `sizes` says so.
# The host finds a member by the same arithmetic. So one boot serves as many arrays as there are lines.
#
#   slice SECTORS                     sets SLICE for the whole file (first line, default 16384 = 8 MiB)
#   ID key=value... --option...       one case; guest/README.md lists the keys of each job; options go to mdadm as they are
#
# Results. One line per case and nothing else looks like it: `RESULT ID key=value...`, no spaces inside a value.

SLICE=16384
LIMIT_S=${LIMIT_S:-60}
mkdir -p /run/mdadm
echo 2000000 > /proc/sys/dev/raid/speed_limit_min
echo 2000000 > /proc/sys/dev/raid/speed_limit_max

say() { printf '%s\n' "$*"; }

# result ID key=value...: the one line a program on the host reads.
result() { printf 'RESULT'; printf ' %s' "$@"; printf '\n'; }

# disk N: the N-th disk of guest/run.
disk() {
	local letters=abcdefghijklmnopqrstuvwxyz
	if (($1 < 26)); then say "/dev/vd${letters:$1:1}"; else say "/dev/vd${letters:$1 / 26 - 1:1}${letters:$1 % 26:1}"; fi
}

# parse_case LINE: sets ID, the array SPEC of its keys, and OPTIONS.
parse_case() {
	local word words
	declare -gA SPEC=()
	OPTIONS=()
	read -ra words <<< "$1"
	ID=${words[0]}
	for word in "${words[@]:1}"; do
		case $word in
		-*) OPTIONS+=("$word") ;;
		*=*) SPEC[${word%%=*}]=${word#*=} ;;
		*) say "$ID: '$word' is neither key=value nor --option"; return 1 ;;
		esac
	done
}

# each_case FILE FUNCTION: calls FUNCTION with K for every case, ID, SPEC and OPTIONS set. Fails if any call fails.
# A call runs in a subshell of its own, so that what one case leaves behind cannot reach the next.
each_case() {
	local line k=0 failed=0
	while read -r line <&3; do
		[[ -n $line && $line != \#* ]] || continue
		if [[ $line == slice\ * ]]; then SLICE=${line#slice }; continue; fi
		if ! (parse_case "$line" && "$2" "$k"); then failed=$((failed + 1)); fi
		k=$((k + 1))
	done 3< "$1"
	say "$k cases, $failed failed"
	((failed == 0))
}

# slices K COUNT [SIZES]: makes the device-mapper slices of case K on the first COUNT disks, sets SLICES to their paths.
slices() {
	local m sizes table=
	IFS=, read -ra sizes <<< "${3:-}"
	SLICES=()
	for ((m = 0; m < $2; m++)); do
		table+="${table:+;}k$1m$m,,,rw,0 ${sizes[m]:-$SLICE} linear $(disk "$m") $(($1 * SLICE))"
		SLICES+=("/dev/mapper/k$1m$m")
	done
	dmsetup create --verifyudev --concise "$table"
}

unslice() { dmsetup remove --verifyudev "${SLICES[@]##*/}"; }

# md ATTRIBUTE: the first word of its value for /dev/md0, or `-` where the level has none. (During a reshape some attributes
# are "new (old)".)
md() {
	local value=-
	{ read -r value _ < "/sys/block/md0/md/$1"; } 2>/dev/null
	say "${value:--}"
}

# rdev SLICE: the sysfs directory of a member of the running array.
rdev() { say "/sys/block/md0/md/dev-dm-$((16#$(stat -L -c %T "$1")))"; }

# settle DEGRADED: waits until nothing is being rebuilt, redundancy is in sync and so many members are missing.
settle() {
	local action start degraded since=$SECONDS
	while ((SECONDS - since < LIMIT_S)); do
		action=$(md sync_action) start=$(md resync_start) degraded=$(md degraded)
		[[ $action != - ]] || return 0
		[[ $action == idle && $start == none && $degraded == "$1" ]] && return 0
		busybox usleep 30000
	done
	say "not settled: sync_action $action, resync_start $start, degraded $degraded (expected $1)"
	cat /proc/mdstat
	return 1
}

# idle: waits until no sync runs, whatever the outcome.
idle() {
	local since=$SECONDS
	while ((SECONDS - since < LIMIT_S)); do
		case $(md sync_action) in idle | frozen | -) return 0 ;; esac
		busybox usleep 30000
	done
	say "still $(md sync_action) after $LIMIT_S s"
	return 1
}

# scrub: runs a check over the whole array, sets MISMATCH to the sectors that differ, or `-` for a level without redundancy.
scrub() {
	MISMATCH=-
	[[ $(md sync_action) != - ]] || return 0
	echo check > /sys/block/md0/md/sync_action || return 1
	idle || return 1
	MISMATCH=$(md mismatch_cnt)
}

# stop: an array may be held for a moment by whoever looked at it last.
stop() {
	local try
	[[ -e /sys/block/md0/md ]] || return 0
	for try in 1 2 3 4 5 6 7 8; do
		mdadm --quiet --stop /dev/md0 2> /tmp/stop && return 0
		busybox usleep 100000
	done
	cat /tmp/stop
	return 1
}

# facts: what the running array is, in the kernel's words.
facts() {
	say "level=$(md level) layout=$(md layout) chunk=$(md chunk_size) metadata=$(md metadata_version)" \
		"raid_disks=$(md raid_disks) degraded=$(md degraded) component_kib=$(md component_size) reshape_position=$(md reshape_position)" \
		"array_sectors=$(cat /sys/block/md0/size)" \
		"io_min=$(cat /sys/block/md0/queue/minimum_io_size) io_opt=$(cat /sys/block/md0/queue/optimal_io_size)"
}

# has_level LEVEL: whether this kernel runs it.
has_level() {
	case $1 in
	linear) modprobe -q linear 2>/dev/null || modprobe -q md-linear 2>/dev/null ;;
	*) true ;;
	esac
}

# layers LIST: turns the `pattern` value SEED[:START:COUNT],... into arguments of patt.
layers() { LAYERS=(); IFS=, read -ra LAYERS <<< "$1"; }
