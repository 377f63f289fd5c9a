/* Safetensors: reads files. */
#include "core/file.h"
#include "core/safetensors_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

static adamod_status st_read_at(const char *path, int fd, uint64_t offset, void *dst, uint64_t size, uint32_t *sum) {
    for (uint64_t done = 0, got = 0; done < size; done += got) {
        char *at = (char *)dst + done;
        const uint64_t piece = size - done < ADAMOD__ST_PIECE ? size - done : ADAMOD__ST_PIECE;
        const int error = adamod__file_read(fd, offset + done, at, piece, &got);
        if (error) return adamod__st_fail_system(path, error, "cannot read");
        if (got < piece)
            return adamod__st_malformed(path, "ends at byte %" PRIu64 ", expected %" PRIu64 " more bytes",
                                        offset + done + got, size - done - got);
        if (sum) *sum = adamod__crc32(*sum, at, (size_t)got);
    }
    return ADAMOD_OK;
}

static adamod_status st_read_length(const char *path, int fd, uint64_t most, uint64_t *length, uint64_t *file_size) {
    struct stat st;
    unsigned char bytes[8];
    if (fstat(fd, &st) < 0) return adamod__st_fail_system(path, errno, "cannot read");
    if (!S_ISREG(st.st_mode)) return adamod__st_fail(path, ADAMOD_ERROR_IO, "not a regular file");
    *file_size = (uint64_t)st.st_size;
    if (*file_size < 8)
        return adamod__st_malformed(path, "%" PRIu64 " bytes are too few for a safetensors file", *file_size);
    ADAMOD__TRY(st_read_at(path, fd, 0, bytes, 8, NULL));
    *length = 0;
    for (int i = 7; i >= 0; i--) *length = *length << 8 | bytes[i];
    if (*length > *file_size - 8)
        return adamod__st_malformed(path, "header length %" PRIu64 " exceeds the file's %" PRIu64 " bytes", *length,
                                    *file_size);
    if (*length <= most) return ADAMOD_OK;
    return adamod__st_malformed(path, "header length %" PRIu64 " exceeds the limit of %" PRIu64 " bytes%s", *length,
                                most, most < ADAMOD__ST_MAX_HEADER ? " for what is to be read" : "");
}

static adamod_status st_read_header(const char *path, int fd, uint64_t most, adamod__st_file *out) {
    uint64_t length = 0, file_size = 0;
    ADAMOD__TRY(st_read_length(path, fd, most, &length, &file_size));
    char *json = malloc(length ? (size_t)length : 1);
    if (!json) return adamod__st_fail_memory(path);
    adamod_status status = st_read_at(path, fd, 8, json, length, NULL);
    if (status == ADAMOD_OK) status = adamod__st_parse_text(path, json, (size_t)length, file_size - 8 - length, out);
    else free(json);
    out->data_start = 8 + length;
    return status;
}

adamod_status adamod__st_open_within(const char *path, uint64_t most, adamod__st_file *out) {
    *out = (adamod__st_file){0};
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    int fd = adamod__file_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return adamod__st_fail_system(path, errno, "cannot open");
    adamod_status status = st_read_header(path, fd, most < ADAMOD__ST_MAX_HEADER ? most : ADAMOD__ST_MAX_HEADER, out);
    if (status == ADAMOD_OK) {
        out->path = strdup(path);
        if (!out->path) status = adamod__st_fail_memory(path);
    }
    out->fd = fd;
    if (status == ADAMOD_OK) return ADAMOD_OK;
    close(fd);
    adamod__st_close(out);
    return status;
}

adamod_status adamod__st_read(const adamod__st_file *file, const adamod__st_entry *entry, void *dst) {
    uint32_t sum = 0;
    if (!file->path) return adamod__st_fail("safetensors", ADAMOD_ERROR_ARGUMENT, "no file is open");
    ADAMOD__TRY(st_read_at(file->path, file->fd, file->data_start + entry->begin, dst, entry->end - entry->begin,
                           file->summed ? &sum : NULL));
    if (!file->summed || !ADAMOD__ST_DIFFER(sum, entry->sum)) return ADAMOD_OK;
    return adamod__st_malformed(file->path,
                                "damaged: tensor \"%s\": the CRC-32 of its data is %08" PRIx32 ", expected %08" PRIx32,
                                adamod__st_quote(entry->name).text, sum, entry->sum);
}

void adamod__st_close(adamod__st_file *file) {
    if (!file) return;
    if (file->path) close(file->fd);
    free(file->path);
    free(file->entries);
    free(file->metadata);
    free(file->text);
    *file = (adamod__st_file){0};
}
