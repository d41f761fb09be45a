# shellcheck shell=bash disable=SC2034,SC2154,SC2209
# What the shim `mdadm` does with the options that it read. An array that runs is a file $SHIM/NAME.array (NAME: md0, md_x),
# which holds its UUID, the number of its ublk device and the process that serves it.

REAL_MDADM=${REAL_MDADM:-/usr/sbin/mdadm}
FORCED=(--force signature --force file-system --force overwrite)
mkdir -p "$SHIM"

# refuse WHAT: what wattle cannot do at all. The table says so even of a test that does not look.
refuse() {
	echo "$*" >> "$SHIM/refused"
	fail "wattle has no $*"
}

fail() {
	echo "mdadm: $*" >&2
	exit 1
}

# Said in the table: the test went on without it.
dropped() { echo "$*" >> "$SHIM/dropped"; }

# name_of DEVICE: md0 of /dev/md0, /dev/md/0 and md0; md_x of /dev/md/x.
name_of() {
	case $1 in
	/dev/md/*[!0-9]*) echo "md_${1#/dev/md/}" ;;
	/dev/md/*) echo "md${1#/dev/md/}" ;;
	*) echo "${1#/dev/}" ;;
	esac
}

# running DEVICE: sets UUID and SERVER of an array that runs.
running() {
	local file
	file=$SHIM/$(name_of "$1").array
	[ -e "$file" ] || return 1
	read -r UUID _ SERVER < "$file"
}

needs() { running "$1" || fail "$1 does not appear to be active"; }

# limits: the settings that are the kernel's limits of now.
limits() {
	echo "sync_speed_min=$(cat /proc/sys/dev/raid/speed_limit_min) sync_speed_max=$(cat /proc/sys/dev/raid/speed_limit_max)"
}

# A recovery that an order begins goes by the limits of this moment: the job that follows them is a little later. One of the two
# at a time, so that the later setting is the newer one.
follow() {
	# The least is never above the most: which one can be set first depends on what they were.
	# shellcheck disable=SC2016  # for the shell that has the lock
	flock "$SHIM/limits" bash -c '. "$1"; read -r min max <<< "$(limits)"; for one in "$min" "$max" "$min"; do wattle set "$2" "$one"; done' \
		- "${BASH_SOURCE[0]}" "$UUID" > /dev/null 2>&1 || true
}

# number_of DEVICE: that of its ublk device. Names without a number get one of their own.
number_of() {
	local name number=32
	name=$(name_of "$1")
	if [[ $name =~ ^md([0-9]+)$ && ${BASH_REMATCH[1]} -lt 32 ]]; then
		echo "${BASH_REMATCH[1]}"
		return
	fi
	while [ -e "/dev/ublkb$number" ]; do number=$((number + 1)); done
	echo "$number"
}

# serve DEVICE UUID MEMBER...: the array runs when this returns.
serve() {
	local name number uuid=$2 log setting speed=()
	name=$(name_of "$1")
	number=$(number_of "$1")
	log=$SHIM/$name.log
	shift 2
	running "$name" && fail "/dev/$name is already in use"
	for setting in $(limits); do speed+=(--set "$setting"); done
	# The device comes with the array; the links of /dev/md are the shim's own.
	setsid wattle serve "$@" --volume "$uuid" --export "ublk=$number" --name "$name" --no-undo "${speed[@]}" "${SERVE[@]}" \
		> /dev/null 2> "$log" < /dev/null &
	local server=$!
	until grep -q 'wattle: ready' "$log"; do
		kill -0 "$server" 2> /dev/null || { cat "$log" >&2; return 1; }
		busybox usleep 50000
	done
	echo "$uuid $number $server" > "$SHIM/$name.array"
	mkdir -p /dev/md
	ln -sfn "/dev/ublkb$number" "/dev/${name/#md_/md\/}"
}
SERVE=()

# stop_array DEVICE
stop_array() {
	local name
	name=$(name_of "$1")
	if [ -e "$SHIM/$name.part" ]; then rm "$SHIM/$name.part"; return 0; fi
	needs "$1"
	wattle stop "$UUID" > "$SHIM/said" 2>&1 || { cat "$SHIM/said" >&2; return 1; }
	while kill -0 "$SERVER" 2> /dev/null; do busybox usleep 50000; done
	rm -f "$SHIM/$name.array" "$SHIM/$name.gone" "/dev/${name/#md_/md\/}"
}

# Those on top of others are stopped first.
stop_all() {
	local round file again=
	rm -f "$SHIM"/*.part
	for round in 1 2 3; do
		again=
		for file in "$SHIM"/*.array; do
			[ -e "$file" ] || continue
			stop_array "$(basename "$file" .array)" 2> /dev/null || again=yes
		done
		[ -n "$again" ] || return 0
	done
	return 1
}

# An array whose resync was cut short counts as one that was not stopped; what is being served stays refused.
zero() {
	[ $# -gt 0 ] || return 0
	wattle erase --no-undo --force in-use "$@" > /dev/null 2> "$SHIM/said" || { cat "$SHIM/said" >&2; return 1; }
}

level_of() {
	local level=${1#raid}
	case $level in
	mirror) level=1 ;;
	stripe) level=0 ;;
	multipath | faulty | container) refuse "level $1" ;;
	esac
	echo "$level"
}

metadata_of() {
	case $1 in
	0 | 0.9) echo 0.90 ;;
	1 | default | '') echo 1.2 ;;
	*) echo "$1" ;;
	esac
}

# mdadm makes a RAID 4 or 5 without its last member and has that rebuilt, unless it is told otherwise; so does this, by a
# missing member and one more spare.
last_as_spare() {
	[[ $level = [45] && -z $force && -z $clean && ${given[consistency-policy]:-} != ppl ]] || return 1
	[[ " ${members[*]:0:slots} " != *' missing '* && $slots -gt 1 ]]
}

create() {
	local level slots=${given[raid-devices]} spares=${given[spare-devices]:-0} name version arguments member
	level=$(level_of "${given[level]}") || exit 1
	version=$(metadata_of "${given[metadata]:-}")
	name=$(name_of "$device")
	name=${name#md}
	name=${given[name]:-${name#_}}
	[ "$version" = 0.90 ] || name=${given[homehost]:-$(hostname)}:$name
	for member in "${members[@]}"; do [ "$member" = missing ] || [ -e "$member" ] || fail "no device $member"; done
	if last_as_spare; then
		members=("${members[@]:0:slots-1}" missing "${members[slots-1]}" "${members[@]:slots}")
		spares=$((spares + 1))
	fi
	arguments=(--level "$level" --metadata "$version" --no-undo --yes)
	[ "$spares" = 0 ] || arguments+=(--spares "$spares")
	[ -z "${given[chunk]:-}" ] || arguments+=(--chunk "${given[chunk]}K")
	[ -z "${given[layout]:-}" ] || arguments+=(--layout "${given[layout]}")
	[ -z "${given[size]:-}" ] || [ "${given[size]}" = max ] || arguments+=(--size "${given[size]}K")
	[ -z "$clean" ] || arguments+=(--assume-clean)
	[ -z "$run" ] || arguments+=("${FORCED[@]}")
	for member in "${!mostly[@]}"; do arguments+=(--write-mostly "$member"); done
	case ${given[bitmap]:-none} in
	/*) refuse "bitmaps in files" ;;
	internal)
		arguments+=(--bitmap internal)
		[ -z "${given[bitmap-chunk]:-}" ] || arguments+=(--bitmap-chunk "${given[bitmap-chunk]}K")
		[ -z "${given[delay]:-}" ] || arguments+=(--bitmap-delay "${given[delay]}") ;;
	none) [[ $level = [0l]* || $level = linear ]] || arguments+=(--bitmap none) ;;
	esac
	wattle create "$name" "${members[@]}" "${arguments[@]}" --json > "$SHIM/made" 2> "$SHIM/said" ||
		{ cat "$SHIM/said" >&2; return 1; }
	local present=()
	for member in "${members[@]}"; do [ "$member" = missing ] || present+=("$member"); done
	serve "$device" "$(jq -r .uuid "$SHIM/made")" "${present[@]}"
}

# identify FILTER MEMBER...: of the arrays on these members, the UUID and the members of the one that FILTER of jq selects.
identify() {
	local filter=$1
	shift
	wattle scan --json "$@" > "$SHIM/scan" 2> "$SHIM/said" || true
	jq -r "[.arrays[] | select($filter)][0] | [.uuid, .members[].member] | join(\" \")" "$SHIM/scan"
}

# By an array's own words, as options and lines of mdadm.conf have them: sets FILTER.
filter() {
	local uuid
	FILTER=true
	if [ -n "${given[uuid]:-}" ]; then
		uuid=$(tr -d ': ' <<< "${given[uuid]}" | tr A-F a-f)
		FILTER+=" and (.uuid | gsub(\":\"; \"\")) == \"$uuid\""
	fi
	[ -z "${given[name]:-}" ] || FILTER+=" and (.name == \"${given[name]}\" or .full_name == \"${given[name]}\")"
	[ -z "${given[super-minor]:-}" ] || FILTER+=" and .metadata == \"0.90\" and .name == \"md${given[super-minor]}\""
}

assemble() {
	[ -z "${given[update]:-}" ] || refuse "--update=${given[update]}"
	[[ ${given[bitmap]:-} != /* ]] || refuse "bitmaps in files"
	if [ -z "$scan" ]; then
		assemble_one "$device" "${members[@]}"
	elif [ -n "${given[config]:-}" ] && [ "${given[config]}" != /dev/null ]; then
		assemble_configured "${given[config]}" "$device"
	else
		assemble_all
	fi
}

# assemble_one DEVICE MEMBER...: of `given`.
assemble_one() {
	local target=$1 found
	shift
	running "$target" && fail "$target is already in use"
	rm -f "$SHIM/$(name_of "$target").part"
	filter
	if [ -z "${given[uuid]:-}${given[name]:-}${given[super-minor]:-}" ]; then
		FILTER=".uuid == \"$(identify true "$1" | cut -d' ' -f1)\""
	fi
	read -ra found <<< "$(identify "$FILTER" "$@")"
	[ ${#found[@]} -gt 1 ] || fail "no array found for $target"
	serve "$target" "${found[@]}"
}

# assemble_configured FILE [DEVICE]: the arrays of lines of mdadm.conf.
assemble_configured() {
	local line words word pool=() wanted=$2 listed status=0
	while read -r line; do
		read -ra words <<< "$line"
		case ${words[0]:-} in
		DEVICE | device) pool=("${words[@]:1}") ;;
		ARRAY | array)
			[ -z "$wanted" ] || [ "$(name_of "$wanted")" = "$(name_of "${words[1]}")" ] || continue
			unset 'given[uuid]' 'given[name]' 'given[super-minor]'
			listed=()
			for word in "${words[@]:2}"; do
				case $word in
				UUID=*) given[uuid]=${word#*=} ;;
				name=*) given[name]=${word#*=} ;;
				super-minor=*) given[super-minor]=${word#*=} ;;
				devices=*) IFS=, read -ra listed <<< "${word#*=}" ;;
				esac
			done
			[ ${#listed[@]} -gt 0 ] || listed=("${pool[@]}")
			assemble_one "${words[1]}" "${listed[@]}" || status=1 ;;
		esac
	done < <(sed -e ':a' -e 'N' -e '$!ba' -e 's/\n[ \t][ \t]*/ /g' "$1")
	return $status
}

# Everything there is, arrays of arrays after those.
assemble_all() {
	local round uuid name pool started=1
	for round in 1 2; do
		mapfile -t pool < <(ls /dev/loop[0-9] /dev/loop1[0-9] /dev/md[0-9]* 2> /dev/null)
		wattle scan --json "${pool[@]}" > "$SHIM/all" 2> /dev/null || true
		while read -r uuid name; do
			! grep -qs "^$uuid" "$SHIM"/*.array || continue
			given[uuid]=$uuid
			(assemble_one "/dev/md${name#md}" "${pool[@]}") && started=0
		done < <(jq -r '.arrays[] | "\(.uuid) \(.name)"' "$SHIM/all")
	done
	return $started
}

# One member at a time: the array starts with the last of them.
incremental() {
	local member=${members[0]} uuid name target have want found
	wattle scan --json "$member" > "$SHIM/scan" 2> "$SHIM/said" || true
	read -r uuid name want <<< "$(jq -r '.arrays[0] | "\(.uuid) \(.name) \(.raid_disks)"' "$SHIM/scan")"
	[[ -n $uuid && $uuid != null ]] || fail "no array found on $member"
	target=md${name#md}
	if [ -n "${given[config]:-}" ]; then
		found=$(sed -n "s/^ARRAY \([^ ]*\) .*$uuid.*/\1/ip" "${given[config]}" | head -1)
		[ -z "$found" ] || target=$(name_of "$found")
	fi
	echo "$member" >> "$SHIM/$target.part"
	mapfile -t have < "$SHIM/$target.part"
	wattle scan --json "${have[@]}" > "$SHIM/scan" 2> "$SHIM/said" || true
	# Started when every member is there that the members' superblocks call active.
	[ "$(jq '[.arrays[0].members[] | select(.slot != null)] | length' "$SHIM/scan")" -ge "$(awaited "$want" "$member")" ] || return 0
	rm "$SHIM/$target.part"
	serve "/dev/$target" "$uuid" "${have[@]}"
}

# awaited DISKS MEMBER: how many members this one's superblock counts as active, in its `Array State` or table of devices.
awaited() {
	local state
	state=$(wattle examine --format mdadm "$2" | sed -n 's/ *Array State : \([A.R]*\) .*/\1/p' | tr -d .)
	if [ -n "$state" ]; then echo ${#state}; else echo "$1"; fi
}

detail() {
	[ -z "$brief$scan" ] || set -- --format scan
	[ -z "$export" ] || set -- --format export
	if [ -z "$device" ]; then wattle detail "$@" 2> /dev/null || true; return; fi
	needs "$device"
	# By the path that the test has for it.
	wattle detail "$UUID" "$@" | sed "s,^ARRAY [^ ]*,ARRAY $device,"
}

examine() {
	local format=mdadm
	[ -z "$brief$scan" ] || format=scan
	[ -z "$export" ] || format=export
	[[ ${given[metadata]:-} != *swap ]] || refuse "superblocks of the other byte order"
	wattle examine --format "$format" "${members[@]}"
}

# wait_for DEVICE: 0 if there was something to wait for.
wait_for() {
	local waited=1
	needs "$1"
	while [ "$(wattle status "$UUID" --json | jq '.arrays[0].sync != null')" = true ]; do
		waited=0
		sleep 0.3
	done
	return $waited
}

grow() {
	needs "$device"
	local what=''
	[[ ${given[bitmap]:-} != /* ]] || refuse "bitmaps in files"
	[ -z "${given[raid-devices]:-}" ] || what+=' --raid-devices'
	[ -z "${given[size]:-}" ] || what+=' --size'
	[ -z "${given[level]:-}" ] || what+=' --level'
	[ -z "${given[chunk]:-}${given[layout]:-}" ] || what+=' --chunk, --layout'
	[ ${#steps[@]} = 0 ] || what+=' --add'
	[ -z "$what" ] || refuse "--grow$what"
	local chunk=internal
	[ -z "${given[bitmap-chunk]:-}" ] || chunk=${given[bitmap-chunk]}K
	[ -z "${given[delay]:-}" ] || chunk+=,delay=${given[delay]}s
	# mdadm refuses what is so already; wattle takes it for done.
	case ${given[bitmap]:-} in
	internal) wattle set "$UUID" "bitmap=$chunk" ;;
	none) wattle set "$UUID" bitmap=none ;;
	*) refuse --grow ;;
	esac
}

# The steps of `mdadm DEVICE --fail M... --remove M...`, one by one.
manage() {
	local at operation member status=0 order
	[ -n "$device" ] || fail 'no device is named'
	needs "$device"
	for member in "${members[@]}"; do steps+=(add "$member"); done
	follow
	for ((at = 0; at < ${#steps[@]}; at += 2)); do
		operation=${steps[at]} member=${steps[at + 1]}
		order=(wattle "$operation" "$UUID" "$member")
		case $operation in
		fail | remove) ;;
		add | re-add | add-spare)
			order=(wattle add "$UUID" "$member" --no-undo "${FORCED[@]}")
			[ -z "${mostly[$member]:-}" ] || order+=(--write-mostly) ;;
		replace)
			[ "${steps[at + 2]:-}" != with ] || { order+=("${steps[at + 3]}"); at=$((at + 2)); } ;;
		run) continue ;;
		readonly | readwrite) order=(again "$operation") ;;
		*) fail "the shim has no $operation" ;;
		esac
		if "${order[@]}" > "$SHIM/said" 2>&1; then
			[ "$operation" != fail ] || echo "$member" >> "$SHIM/$(name_of "$device").gone"
			continue
		fi
		# wattle has let go of a failed member whose slot a spare took; md keeps it until it is removed.
		if [ "$operation" = remove ] && grep -q 'WTL-0003' "$SHIM/said" && grep -qsx "$member" "$SHIM/$(name_of "$device").gone"; then
			continue
		fi
		cat "$SHIM/said" >&2
		status=1
	done
	return $status
}

# A running array turns read-only, or back, only by a server anew.
again() {
	local found
	mapfile -t found < <(wattle status "$UUID" --json | jq -r '.arrays[0] | .members[].member, .spares[]?.member')
	stop_array "$device" || return 1
	[ "$1" = readwrite ] || SERVE=(--read-only)
	serve "$device" "$UUID" "${found[@]}"
}
