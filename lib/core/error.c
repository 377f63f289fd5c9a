/* The thread's last message, and text that is safe to show on a terminal. */
#include "core/error.h"

#include "core/safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One for each thread, like errno. */
static _Thread_local char adamod__message[ADAMOD__MESSAGE] = "no error";
static _Thread_local adamod_status adamod__status;

/* Code points that a terminal obeys, or that change the order in which it shows text: controls (C0, DEL, C1), direction
 * marks, line separators, embeddings, overrides and isolates, and their deprecated forms. */
static bool adamod__is_obeyed(unsigned code) {
    static const struct {
        unsigned first, last;
    } ranges[] = {{0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},  {0x200e, 0x200f},
                  {0x2028, 0x202e}, {0x2066, 0x206f}, {0xfff9, 0xfffb}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    }
    return false;
}

unsigned adamod__code_point(const char *text, size_t n) {
    const unsigned char *u = (const unsigned char *)text;
    unsigned code = n < 2 ? u[0] : u[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) code = code << 6 | (u[i] & 0x3fu);
    return code;
}

bool adamod__is_harmless(const char *text, size_t left, size_t *n) {
    const size_t length = adamod__utf8_length(text, left);
    *n = length ? length : 1;
    return length && !adamod__is_obeyed(adamod__code_point(text, length));
}

void adamod__make_plain(char *text) {
    char *to = text;
    for (size_t left = strlen(text), n; left; text += n, left -= n) {
        if (adamod__is_harmless(text, left, &n)) {
            memmove(to, text, n);
            to += n;
        } else {
            *to++ = '?';
        }
    }
    *to = '\0';
}

/* A message that is too long loses its middle, usually part of a long path: the end says what is wrong. */
static void adamod__keep_message(const char *text) {
    const size_t length = strlen(text), half = sizeof adamod__message / 2 - 2;
    if (length < sizeof adamod__message) {
        memcpy(adamod__message, text, length + 1);
    } else {
        memcpy(adamod__message, text, half);
        memcpy(adamod__message + half, "...", 3);
        memcpy(adamod__message + half + 3, text + length - half, half + 1);
    }
    adamod__make_plain(adamod__message);
}

adamod_status adamod__fail(adamod_status status, const char *format, ...) {
    char text[8192] = "adamod: ";
    const size_t prefix = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + prefix, sizeof text - prefix, format, arguments);
    va_end(arguments);
    adamod__keep_message(text);
    return adamod__status = status;
}

adamod_status adamod__context(const char *format, ...) {
    char text[ADAMOD__MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return adamod__fail(adamod__status, "%s%s", text, adamod__last_message());
}

void adamod__save_failure(adamod__failure *out) {
    out->status = adamod__status;
    snprintf(out->message, sizeof out->message, "%s", adamod__last_message());
}

adamod_status adamod__fail_again(const adamod__failure *failure) {
    return adamod__fail(failure->status, "%s", failure->message);
}

const char *adamod_last_error(void) { return adamod__message; }

const char *adamod_strerror(adamod_status status) {
    switch (status) {
        case ADAMOD_OK: return "success";
        case ADAMOD_ERROR_ARGUMENT: return "invalid argument";
        case ADAMOD_ERROR_NAME: return "unknown name";
        case ADAMOD_ERROR_RANGE: return "value out of bounds";
        case ADAMOD_ERROR_ORDER: return "not possible at this point";
        case ADAMOD_ERROR_MEMORY: return "out of memory";
        case ADAMOD_ERROR_NONFINITE: return "gradient is not finite";
        case ADAMOD_ERROR_IO: return "input or output failed";
        case ADAMOD_ERROR_FORMAT: return "malformed file";
        case ADAMOD_ERROR_MISMATCH: return "file does not fit";
        case ADAMOD_ERROR_THREADS: return "cannot start a thread";
        case ADAMOD_ERROR_NO_CUDA: return "no CUDA";
        case ADAMOD_ERROR_DRIVER: return "the CUDA driver is too old";
        case ADAMOD_ERROR_DEVICE: return "no such device, or memory it cannot reach";
        case ADAMOD_ERROR_DEVICE_MEMORY: return "out of device memory";
        case ADAMOD_ERROR_CUDA: return "a CUDA call failed";
    }
    return "unknown status";
}

void *adamod__resize(void *old, size_t n, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? NULL : realloc(old, bytes);
}
