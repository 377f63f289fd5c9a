/* Prodigy's driver: d, one number for all arrays of an update. Every array keeps it; the one with the most updates is asked. */
#include "rules/prodigy.h"

#include "optim/update.h"

static bool adamod__prodigy_takes_part(const work_item *item) { return item->span->grad && item->span->count > 0; }

/* NULL: there is no gradient. */
static const work_item *adamod__prodigy_lead(const work *w) {
    const work_item *lead = NULL;
    for (size_t i = 0; i < w->n; i++) {
        const work_item *item = &w->items[i];
        if (adamod__prodigy_takes_part(item) && (!lead || item->span->step > lead->span->step)) lead = item;
    }
    return lead;
}

static prodigy_numbers adamod__prodigy_read(const work *w, const work_item *item, const adamod__coef_f64 *c) {
    const block_source b = adamod__source(w, item, c);
    const prodigy_numbers x = {adamod__state_number(w, &b, PRODIGY_D, 0), adamod__state_number(w, &b, PRODIGY_MOST, 0),
                               adamod__state_number(w, &b, PRODIGY_NUMERATOR, 0)};
    return adamod__prodigy_started(x, item->options);
}

static void adamod__prodigy_write(const work *w, const work_item *item, const adamod__coef_f64 *c,
                                  const prodigy_numbers *x) {
    const block_source b = adamod__source(w, item, c);
    adamod__set_state_number(w, &b, PRODIGY_D, 0, x->d);
    adamod__set_state_number(w, &b, PRODIGY_MOST, 0, x->most);
    adamod__set_state_number(w, &b, PRODIGY_NUMERATOR, 0, x->numerator);
}

static void adamod__prodigy_run(const work *w, work_space *space) {
    const work_item *lead = adamod__prodigy_lead(w);
    if (!lead) return;
    prodigy_numbers x = adamod__prodigy_read(w, lead, &space->coefs[space->coef_of[lead - w->items]]);
    const double d0 = lead->options[OPT_D0];
    for (size_t i = 0; i < w->n; i++) {
        adamod__prodigy_begin(w->items[i].options, x.d, d0, &space->coefs[space->coef_of[i]]);
    }
    adamod__sum_arrays(w, space, false);
    double along = 0, size = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (!adamod__prodigy_takes_part(&w->items[i])) continue;
        double sum[2];
        adamod__array_sums(space, i, sum);
        size += sum[0];
        along += space->coefs[space->coef_of[i]].high * sum[1];
    }
    const adamod_type kept = adamod__source(w, lead, &space->coefs[space->coef_of[lead - w->items]]).state_type;
    adamod__prodigy_estimate(lead->options, along, size, adamod__prodigy_kept(kept), &x);
    for (size_t i = 0; i < w->n; i++) {
        const work_item *item = &w->items[i];
        adamod__coef_f64 *c = &space->coefs[space->coef_of[i]];
        adamod__prodigy_end(x.d, c);
        if (adamod__prodigy_takes_part(item)) adamod__prodigy_write(w, item, c, &x);
    }
}

const rule_driver adamod__prodigy_driver = {.run = adamod__prodigy_run};
