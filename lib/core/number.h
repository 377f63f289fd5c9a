/* number.h - numbers as text and back, independent of the program's locale and rounding mode. */
#ifndef ADAMOD_CORE_NUMBER_H
#define ADAMOD_CORE_NUMBER_H

#include "core/platform.h" /* first */

/* Writes x in the fewest significant digits, but at least `digits`, that read back as exactly x: "0.1", "1e-08". Whole
 * numbers of a magnitude below `whole` are written without an exponent: 9000, not 9e+03. Returns out. */
const char *adamod__shortest(double x, int digits, double whole, char out[32]);

/* The form in messages of the library: at least 6 digits. */
static inline const char *adamod__number(double x, char out[32]) { return adamod__shortest(x, 6, 0, out); }

/* strtod in the C locale, rounding to nearest. */
double adamod__read_number(const char *text, char **end);

#endif
