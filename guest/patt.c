// patt: fills a block device with a recognisable pattern, or checks that it is there.
//
//   patt write  DEV LAYER...     writes the layers in order, then fsyncs
//   patt verify DEV LAYER...     checks every sector against the last layer that covers it
//
// LAYER is SEED, for the whole device, or SEED:START:COUNT, in 512-byte sectors of the device. Sector s of a layer holds
// the little-endian u64 splitmix64(SEED ^ s) 64 times, so a sector says where it belongs and which write put it there.
// Exit status: 0 good, 1 I/O error, 2 usage, 3 some sectors differ.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SECTOR = 512, WORDS = SECTOR / 8, BATCH = 2048, LAYERS_MAX = 64, REPORT_MAX = 8 };

struct layer {
	uint64_t seed, start, end;
};

static uint64_t batch[BATCH * WORDS] __attribute__((aligned(4096)));

static uint64_t splitmix64(uint64_t z)
{
	z += 0x9E3779B97F4A7C15ull;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
	return z ^ (z >> 31);
}

static bool parse(const char *text, uint64_t sectors, struct layer *out)
{
	char *rest;
	out->seed = strtoull(text, &rest, 0);
	out->start = 0;
	out->end = sectors;
	if (rest == text)
		return false;
	if (*rest == '\0')
		return true;
	uint64_t count;
	if (*rest != ':' || sscanf(rest, ":%" SCNu64 ":%" SCNu64, &out->start, &count) != 2)
		return false;
	out->end = out->start + count;
	return out->start <= out->end && out->end <= sectors;
}

static bool transfer(int fd, bool write, uint64_t first, uint64_t count)
{
	char *at = (char *)batch;
	off_t offset = (off_t)(first * SECTOR);
	size_t left = count * SECTOR;
	while (left > 0) {
		ssize_t n = write ? pwrite(fd, at, left, offset) : pread(fd, at, left, offset);
		if (n <= 0) {
			printf("patt: %s at sector %" PRIu64 ": %s\n", write ? "write" : "read", first, n ? strerror(errno) : "end of device");
			return false;
		}
		at += n;
		offset += n;
		left -= (size_t)n;
	}
	return true;
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
		if (!transfer(fd, true, first, count))
			return false;
	}
	return true;
}

// Returns the number of wrong sectors, or UINT64_MAX after an I/O error.
static uint64_t verify(int fd, uint64_t sectors, const struct layer *layers, int layer_count)
{
	uint64_t bad = 0;
	for (uint64_t first = 0; first < sectors; first += BATCH) {
		uint64_t count = sectors - first < BATCH ? sectors - first : BATCH;
		if (!transfer(fd, false, first, count))
			return UINT64_MAX;
		for (uint64_t i = 0; i < count; i++) {
			uint64_t sector = first + i;
			int l = layer_count - 1;
			while (l >= 0 && (sector < layers[l].start || sector >= layers[l].end))
				l--;
			if (l < 0)
				continue;
			uint64_t want = splitmix64(layers[l].seed ^ sector);
			int w = 0;
			while (w < WORDS && batch[i * WORDS + w] == want)
				w++;
			if (w == WORDS)
				continue;
			if (bad++ < REPORT_MAX)
				printf("patt: sector %" PRIu64 " word %d: expected %016" PRIx64 " (seed %" PRIu64 "), found %016" PRIx64 "\n",
				       sector, w, want, layers[l].seed, batch[i * WORDS + w]);
		}
	}
	return bad;
}

int main(int argc, char **argv)
{
	bool write = argc > 1 && strcmp(argv[1], "write") == 0;
	if (argc < 4 || argc - 3 > LAYERS_MAX || (!write && strcmp(argv[1], "verify") != 0)) {
		fprintf(stderr, "usage: patt write|verify DEV SEED[:START:COUNT]...\n");
		return 2;
	}
	int fd = open(argv[2], write ? O_RDWR : O_RDONLY);
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (bytes < 0) {
		perror(argv[2]);
		return 1;
	}
	uint64_t sectors = (uint64_t)bytes / SECTOR;
	struct layer layers[LAYERS_MAX];
	int layer_count = argc - 3;
	for (int i = 0; i < layer_count; i++) {
		if (!parse(argv[3 + i], sectors, &layers[i])) {
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
		// What the page cache remembers proves nothing about the members.
		ioctl(fd, BLKFLSBUF);
		bad = verify(fd, sectors, layers, layer_count);
		if (bad == UINT64_MAX)
			return 1;
	}
	printf("patt: %s %s, %" PRIu64 " sectors, %" PRIu64 " bad\n", argv[1], argv[2], sectors, bad);
	return bad ? 3 : 0;
}
