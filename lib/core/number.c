#include "core/number.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* libc's conversions follow the locale, whose decimal point may be a comma, and the rounding mode. */
typedef struct adamod__locale {
    locale_t own, before;
    int rounding;
} adamod__locale;

static adamod__locale adamod__enter_locale(void) {
    adamod__locale l = {.own = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0)};
    l.before = uselocale(l.own); /* if newlocale ran out of memory, the locale stays as it is */
    l.rounding = fegetround();
    if (l.rounding != FE_TONEAREST) fesetround(FE_TONEAREST);
    return l;
}

static void adamod__leave_locale(adamod__locale l) {
    if (l.rounding != FE_TONEAREST) fesetround(l.rounding);
    uselocale(l.before);
    if (l.own) freelocale(l.own);
}

double adamod__read_number(const char *text, char **end) {
    const adamod__locale l = adamod__enter_locale();
    const double x = strtod(text, end);
    adamod__leave_locale(l);
    return x;
}

const char *adamod__shortest(double x, int digits, double whole, char out[32]) {
    const adamod__locale l = adamod__enter_locale();
    if (fabs(x) < whole && x == rint(x)) snprintf(out, 32, "%.0f", x);
    else do
            snprintf(out, 32, "%.*g", digits, x);
        while (strtod(out, NULL) != x && ++digits <= 17);
    adamod__leave_locale(l);
    return out;
}
