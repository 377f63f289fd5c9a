/* reader_note.c - note.txt: a line that people write about a run. */
#include "report/reader_parts.h"

#include <stdlib.h>
#include <string.h>

const char *report_note_fault(const char *text, size_t n) {
    bool blank = true;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n' || text[i] == '\r') return "has more than one line, expected one";
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) return "has a control character, expected a line of text";
        blank &= text[i] == ' ';
    }
    if (blank) return "is empty, expected a line of text";
    if (n >= REPORT_NOTE) return "is longer than 300 bytes";
    for (text_slice rest = {text, n}; rest.n;) {
        const size_t code = text_code_point(rest);
        if (!code) return "is not UTF-8";
        rest.bytes += code;
        rest.n -= code;
    }
    return NULL;
}

static int fail(const reader_place *at, const char *fault) {
    char text[80];
    snprintf(text, sizeof text, "it %s", fault);
    return reader_fail(at, text);
}

int reader_note(report_run *r) {
    const reader_place at = reader_file(r->directory, "note.txt");
    char *text = NULL;
    size_t n = 0;
    int status = reader_small(&at, READER_BYTES, &text, &n);
    if (status <= 0) return status;
    if (n && text[n - 1] == '\n') n--;
    const char *fault = report_note_fault(text, n);
    if (fault) status = fail(&at, fault);
    else snprintf(r->note, sizeof r->note, "%.*s", (int)n, text);
    free(text);
    return fault ? status : 0;
}
