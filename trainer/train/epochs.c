#include "train/epochs.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* 0.1 epochs of 10 batches are 1 update, although 0.1 is not exact. */
#define ROUNDING 1e-12

static double updates_of(epoch_length length, double epochs) {
    return epochs * (double)length.batches / (double)length.accumulate;
}

int64_t epochs_to_updates(epoch_length length, double epochs) {
    const double updates = ceil(updates_of(length, epochs) * (1 - ROUNDING));
    return updates < 1 ? 1 : (int64_t)updates;
}

int64_t epochs_times(epoch_length length, key_span every, int64_t step) {
    if (every.updates > 0) return step / every.updates;
    if (!(every.epochs > 0)) return 0;
    return (int64_t)floor((double)step / updates_of(length, every.epochs) * (1 + ROUNDING));
}

bool epochs_due(epoch_length length, key_span every, int64_t step) {
    return epochs_times(length, every, step) > epochs_times(length, every, step - 1);
}

double epochs_done(epoch_length length, int64_t epoch, int64_t index) {
    const double part = length.batches > 0 ? (double)index / (double)length.batches : 0;
    return (double)epoch + fmin(floor(part * 1e6 + 0.5), 999999) / 1e6;
}

/* ---- schedules ---- */

/* Parses "150 epochs" at the start of a text; returns its length, or 0. */
static size_t read_epochs(const char *text, double *epochs) {
    char number[32];
    const size_t digits = strspn(text, "0123456789.");
    size_t n = digits + strspn(text + digits, " ");
    if (!digits || digits >= sizeof number || strncmp(text + n, "epoch", 5) != 0) return 0;
    n += 5;
    n += text[n] == 's';
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    if (isalnum((unsigned char)text[n]) || !key_parse_number(number, epochs) || !(*epochs > 0)) return 0;
    return *epochs <= KEY_MOST_EPOCHS ? n : 0;
}

bool epochs_schedule(epoch_length length, const char *text, char *out, size_t size) {
    const bool known = length.batches > 0;
    size_t used = 0;
    while (*text && used < size) {
        double epochs;
        const bool inside = isalnum((unsigned char)*text) || *text == '.';
        const size_t n = read_epochs(text, &epochs);
        const size_t run = inside ? strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789.") : 1;
        if (n && known)
            used += (size_t)snprintf(out + used, size - used, "%lld", (long long)epochs_to_updates(length, epochs));
        else if (n) used += (size_t)snprintf(out + used, size - used, "%-*.0f", (int)n, ceil(epochs * 1e4));
        else used += (size_t)snprintf(out + used, size - used, "%.*s", (int)run, text);
        text += n ? n : run;
    }
    return used < size;
}
