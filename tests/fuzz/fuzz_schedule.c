/* libFuzzer target: lib/optim/schedule.c, on the text of a schedule.
 *
 * A text is refused in one line, or gives a schedule that has a value in every update, which is also that of its copies: in
 * a chain of its own, in an optimizer's group, and in a group made after it.
 *
 * SPDX-License-Identifier: MIT
 */
#include "fuzz.h"
#include "adamod.h"

static int same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void check_values(const adamod_schedule *s) {
    static const int64_t updates[] = {1, 2, 3, 10, 500, 501, 4000, 1000000, INT64_MAX};
    static const double bases[] = {0, 1e-3, 1, 1e300};
    const size_t n_updates = sizeof updates / sizeof *updates, n_bases = sizeof bases / sizeof *bases;
    adamod_schedule *chain = NULL;
    adamod_optimizer *opt = NULL;
    int group;
    require(adamod_schedule_chain(&chain, 1, &s, NULL) == ADAMOD_OK);
    require(adamod_create(&opt, "adamod") == ADAMOD_OK);
    require(adamod_set_schedule(opt, 0, "lr", chain) == ADAMOD_OK && adamod_add_group(opt, &group) == ADAMOD_OK);
    for (size_t i = 0; i < n_updates * n_bases; i++) {
        const int64_t t = updates[i % n_updates];
        const double base = bases[i / n_updates], value = adamod_schedule_value(s, base, t);
        double there;
        require(same(value, adamod_schedule_value(chain, base, t)));
        if (adamod_group_set(opt, group, "lr", base)) continue; /* out of bounds */
        require(adamod_scheduled_at(opt, group, "lr", t, &there) == ADAMOD_OK && same(value, there));
    }
    adamod_free(opt);
    adamod_schedule_free(chain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1); /* of its size, so that reading past its end is seen */
    adamod_schedule *s = NULL;
    require(text != NULL);
    if (size) memcpy(text, data, size);
    text[size] = '\0';
    const adamod_status status = adamod_schedule_parse(&s, text);
    if (status == ADAMOD_OK) {
        check_values(s);
    } else {
        const char *line = adamod_last_error();
        require(s == NULL && (status == ADAMOD_ERROR_ARGUMENT || status == ADAMOD_ERROR_RANGE));
        require(!strncmp(line, "adamod: ", 8) && strlen(line) < 512 && is_line(line));
    }
    adamod_schedule_free(s);
    free(text);
    return 0;
}
