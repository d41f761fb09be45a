// patt: fills a block device with a recognisable pattern, checks that it is there, and compares and copies devices.
//
//   patt write  DEV LAYER...                 writes the layers in order, then fsyncs
//   patt verify DEV LAYER...                 checks every sector against the layers that cover it
//   patt unreadable DEV                      prints the ranges that give errors as START:COUNT,..., or `-`
//   patt copy   FROM START TO START COUNT    copies sectors, past the page cache
//   patt differ ONE START OTHER START COUNT  compares sectors, past the page cache
//   patt scribble DEV WRITES                 writes 16 KiB here and there, WRITES times, past the page cache, out of memory that
//                                            another process changes all the time
//   patt spray DEV SEED WRITES SECTORS       writes 1 to SECTORS sectors here and there, WRITES times, past the page cache: write n
//                                            is a layer of seed SEED + n
//
// LAYER is SEED, for the whole device, or SEED:START:COUNT, in 512-byte sectors of the device. Sector s of a layer holds
// the little-endian u64 splitmix64(SEED ^ s) 64 times, so a sector says where it belongs and which write put it there. Later
// layers lie on top of earlier ones. Only to verify:
//
//   ?SEED:START:COUNT   was being written: each sector holds this or what lies below
//   any:START:COUNT     is not looked at
//   lost:START:COUNT    must give an error
//
// Exit status: 0 good, 1 I/O error, 2 usage, 3 some sectors differ.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECTOR = 512, WORDS = SECTOR / 8, BATCH = 2048, LAYERS_MAX = 1024, REPORT_MAX = 8 };

enum kind { WRITTEN, IN_FLIGHT, ANY, LOST };

struct layer {
	enum kind kind;
	uint64_t seed, start, end;
};

static uint64_t batch[BATCH * WORDS] __attribute__((aligned(4096)));
static uint64_t other[BATCH * WORDS] __attribute__((aligned(4096)));

static uint64_t splitmix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15ull;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

static bool starts_with(const char **text, const char *word)
{
	if (strncmp(*text, word, strlen(word)) != 0)
		return false;
	*text += strlen(word);
	return true;
}

static bool parse(const char *text, uint64_t sectors, struct layer *out)
{
	*out = (struct layer){ .kind = WRITTEN, .start = 0, .end = sectors };
	uint64_t count;
	if (starts_with(&text, "any")) {
		out->kind = ANY;
	} else if (starts_with(&text, "lost")) {
		out->kind = LOST;
	} else {
		if (starts_with(&text, "?"))
			out->kind = IN_FLIGHT;
		char *rest;
		out->seed = strtoull(text, &rest, 0);
		if (rest == text)
			return false;
		text = rest;
	}
	if (*text == '\0')
		return true;
	if (sscanf(text, ":%" SCNu64 ":%" SCNu64, &out->start, &count) != 2)
		return false;
	out->end = out->start + count;
	return out->start <= out->end && out->end <= sectors;
}

// Returns 0, or errno.
static int transfer(int fd, bool write, uint64_t *buffer, uint64_t first, uint64_t count)
{
	char *at = (char *)buffer;
	off_t offset = (off_t)(first * SECTOR);
	size_t left = count * SECTOR;
	while (left > 0) {
		ssize_t n = write ? pwrite(fd, at, left, offset) : pread(fd, at, left, offset);
		if (n <= 0)
			return n < 0 ? errno : ENODATA;
		at += n;
		offset += n;
		left -= (size_t)n;
	}
	return 0;
}

static bool must(int error, const char *what, uint64_t first)
{
	if (error != 0)
		printf("patt: %s at sector %" PRIu64 ": %s\n", what, first, strerror(error));
	return error == 0;
}

// Opens past the page cache where that is possible: what the page cache remembers proves nothing about the members.
static int open_direct(const char *path, int flags)
{
	int fd = open(path, flags | O_DIRECT, 0600);
	return fd >= 0 || errno != EINVAL ? fd : open(path, flags, 0600);
}

// Reads a batch; sectors that give errors have failed[i] set. Narrows down to single sectors only where something fails.
static void read_batch(int fd, uint64_t first, uint64_t count, bool *failed)
{
	memset(failed, 0, count);
	if (transfer(fd, false, batch, first, count) == 0)
		return;
	if (count == 1) {
		failed[0] = true;
		return;
	}
	for (uint64_t i = 0, step = count > 128 ? 128 : count > 8 ? 8 : 1; i < count; i += step) {
		uint64_t part = count - i < step ? count - i : step;
		if (transfer(fd, false, batch + i * WORDS, first + i, part) == 0)
			continue;
		for (uint64_t s = 0; s < part; s++)
			failed[i + s] = transfer(fd, false, batch + (i + s) * WORDS, first + i + s, 1) != 0;
	}
}

static bool write_layer(int fd, const struct layer *layer)
{
	for (uint64_t first = layer->start; first < layer->end; first += BATCH) {
		uint64_t count = layer->end - first < BATCH ? layer->end - first : BATCH;
		for (uint64_t i = 0; i < count; i++) {
			uint64_t word = splitmix64(layer->seed ^ (first + i));
			for (int w = 0; w < WORDS; w++)
				batch[i * WORDS + w] = word;
		}
		if (!must(transfer(fd, true, batch, first, count), "write", first))
			return false;
	}
	return true;
}

static bool holds(const uint64_t *words, uint64_t want)
{
	int w = 0;
	while (w < WORDS && words[w] == want)
		w++;
	return w == WORDS;
}

// Whether a sector is what its layers allow.
static bool good(const struct layer *layers, int layer_count, uint64_t sector, const uint64_t *words, bool failed)
{
	for (int l = layer_count - 1; l >= 0; l--) {
		const struct layer *layer = &layers[l];
		if (sector < layer->start || sector >= layer->end)
			continue;
		if (layer->kind == ANY)
			return true;
		if (layer->kind == LOST || failed)
			return (layer->kind == LOST) == failed;
		if (holds(words, splitmix64(layer->seed ^ sector)))
			return true;
		if (layer->kind == WRITTEN)
			return false;
	}
	return !failed;
}

static uint64_t verify(int fd, uint64_t sectors, const struct layer *layers, int layer_count)
{
	static bool failed[BATCH];
	uint64_t bad = 0;
	for (uint64_t first = 0; first < sectors; first += BATCH) {
		uint64_t count = sectors - first < BATCH ? sectors - first : BATCH;
		read_batch(fd, first, count, failed);
		for (uint64_t i = 0; i < count; i++) {
			const uint64_t *words = &batch[i * WORDS];
			if (good(layers, layer_count, first + i, words, failed[i]) || bad++ >= REPORT_MAX)
				continue;
			if (failed[i])
				printf("patt: sector %" PRIu64 ": cannot be read\n", first + i);
			else
				printf("patt: sector %" PRIu64 ": unexpected content %016" PRIx64 "\n", first + i, words[0]);
		}
	}
	return bad;
}

static void unreadable(int fd, uint64_t sectors)
{
	static bool failed[BATCH];
	uint64_t start = 0, run = 0;
	const char *comma = "";
	for (uint64_t first = 0; first < sectors; first += BATCH) {
		uint64_t count = sectors - first < BATCH ? sectors - first : BATCH;
		read_batch(fd, first, count, failed);
		for (uint64_t i = 0; i < count; i++) {
			if (failed[i]) {
				start = run++ ? start : first + i;
				continue;
			}
			if (run > 0) {
				printf("%s%" PRIu64 ":%" PRIu64, comma, start, run);
				comma = ",";
			}
			run = 0;
		}
	}
	if (run > 0)
		printf("%s%" PRIu64 ":%" PRIu64, comma, start, run);
	printf("%s\n", run > 0 || *comma ? "" : "-");
}

// Copies COUNT sectors, or (`compare`) looks for the first that differs.
static int pair(char **argv, bool compare)
{
	int one = open_direct(argv[0], O_RDONLY);
	int two = open_direct(argv[2], compare ? O_RDONLY : O_RDWR | O_CREAT);
	if (one < 0 || two < 0) {
		perror(one < 0 ? argv[0] : argv[2]);
		return 1;
	}
	uint64_t from = strtoull(argv[1], NULL, 0), to = strtoull(argv[3], NULL, 0), count = strtoull(argv[4], NULL, 0);
	for (uint64_t done = 0; done < count; done += BATCH) {
		uint64_t part = count - done < BATCH ? count - done : BATCH;
		if (!must(transfer(one, false, batch, from + done, part), "read", from + done))
			return 1;
		if (!must(transfer(two, !compare, compare ? other : batch, to + done, part), compare ? "read" : "write", to + done))
			return 1;
		if (compare && memcmp(batch, other, part * SECTOR) != 0)
			return 3;
	}
	if (!compare && fsync(two) != 0) {
		perror("patt: fsync");
		return 1;
	}
	return 0;
}

// Writes out of memory that never rests: what lands is unknown, but it has to be the same on every copy.
static int scribble(const char *path, long writes)
{
	enum { BYTES = 16384, WRITERS = 4 };
	uint64_t *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int fd = open(path, O_RDWR | O_DIRECT);
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (bytes < BYTES || memory == MAP_FAILED) {
		perror(path);
		return 1;
	}
	pid_t scribbler = fork();
	for (uint64_t turn = 0; scribbler == 0; turn++)
		for (int i = 0; i < BYTES / 8; i++)
			((volatile uint64_t *)memory)[i] = splitmix64(turn + (uint64_t)i);
	for (int writer = 0; writer < WRITERS; writer++) {
		if (fork() != 0)
			continue;
		for (long n = writer; n < writes; n += WRITERS) {
			off_t at = (off_t)(splitmix64((uint64_t)n) % ((uint64_t)bytes / BYTES)) * BYTES;
			if (pwrite(fd, memory, BYTES, at) != BYTES) {
				perror("patt: write");
				_exit(1);
			}
		}
		_exit(0);
	}
	int failed = 0, status;
	for (int writer = 0; writer < WRITERS; writer++)
		failed |= wait(&status) < 0 || status != 0;
	kill(scribbler, SIGKILL);
	return failed;
}

// Small writes all over the device, which overlap one another in every way.
static int spray(const char *path, uint64_t seed, uint64_t writes, uint64_t longest)
{
	int fd = open_direct(path, O_RDWR);
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (bytes < 0 || longest == 0 || longest > BATCH || (uint64_t)bytes / SECTOR <= longest) {
		perror(path);
		return 1;
	}
	for (uint64_t n = 0; n < writes; n++) {
		uint64_t dice = splitmix64(~(seed + n)), count = 1 + dice % longest;
		uint64_t start = (dice >> 16) % ((uint64_t)bytes / SECTOR - count);
		struct layer layer = { .kind = WRITTEN, .seed = seed + n, .start = start, .end = start + count };
		if (!write_layer(fd, &layer))
			return 1;
	}
	return 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: patt write|verify DEV LAYER... | unreadable DEV | copy|differ A START B START COUNT | scribble DEV WRITES"
			" | spray DEV SEED WRITES SECTORS\n");
	return 2;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";
	bool write = strcmp(verb, "write") == 0, probe = strcmp(verb, "unreadable") == 0;
	if (strcmp(verb, "copy") == 0 || strcmp(verb, "differ") == 0)
		return argc == 7 ? pair(argv + 2, *verb == 'd') : usage();
	if (strcmp(verb, "scribble") == 0)
		return argc == 4 ? scribble(argv[2], strtol(argv[3], NULL, 0)) : usage();
	if (strcmp(verb, "spray") == 0)
		return argc == 6 ? spray(argv[2], strtoull(argv[3], NULL, 0), strtoull(argv[4], NULL, 0), strtoull(argv[5], NULL, 0)) : usage();
	if (!write && !probe && strcmp(verb, "verify") != 0)
		return usage();
	if (probe ? argc != 3 : argc < 4 || argc - 3 > LAYERS_MAX)
		return usage();
	int fd = write ? open(argv[2], O_RDWR) : open_direct(argv[2], O_RDONLY);
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (bytes < 0) {
		perror(argv[2]);
		return 1;
	}
	uint64_t sectors = (uint64_t)bytes / SECTOR;
	if (probe) {
		unreadable(fd, sectors);
		return 0;
	}
	struct layer layers[LAYERS_MAX];
	int layer_count = argc - 3;
	for (int i = 0; i < layer_count; i++) {
		if (!parse(argv[3 + i], sectors, &layers[i]) || (write && layers[i].kind != WRITTEN)) {
			printf("patt: '%s' is no layer of a device of %" PRIu64 " sectors\n", argv[3 + i], sectors);
			return 2;
		}
	}

	uint64_t bad = 0;
	if (write) {
		for (int i = 0; i < layer_count; i++)
			if (!write_layer(fd, &layers[i]))
				return 1;
		if (fsync(fd) != 0) {
			perror("patt: fsync");
			return 1;
		}
	} else {
		bad = verify(fd, sectors, layers, layer_count);
	}
	printf("patt: %s %s, %" PRIu64 " sectors, %" PRIu64 " bad\n", verb, argv[2], sectors, bad);
	return bad ? 3 : 0;
}
