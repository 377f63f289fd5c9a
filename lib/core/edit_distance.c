#include "core/edit_distance.h"

#include <ctype.h>
#include <string.h>

int adamod__edit_distance(const char *a, const char *b) {
    enum { LONGEST = 48 };
    int row[LONGEST + 1];
    const size_t n = strlen(b);
    if (strlen(a) > LONGEST || n > LONGEST) return EDIT_DISTANCE_FAR;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            const int change = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            const int insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < insert ? change : insert;
        }
    }
    return row[n];
}
