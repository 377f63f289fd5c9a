#include "data/sets/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool has_scheme(const char *url, const char *scheme) { return strncasecmp(url, scheme, strlen(scheme)) == 0; }

bool address_is_file(const char *url) { return has_scheme(url, "file:"); }
bool address_is_plain(const char *url) { return has_scheme(url, "http:"); }
bool address_is_secure(const char *url) { return has_scheme(url, "https:"); }

/* The part after "scheme://", or all of it. */
static const char *behind_scheme(const char *url) {
    const char *mark = strstr(url, "://");
    return mark ? mark + 3 : url;
}

/* The part after the user name and password; NULL: there is none. A password must not contain '/', but people write it: after
 * "name:", any '@' may end a password. */
static const char *behind_password(const char *url) {
    const char *from = behind_scheme(url), *at = NULL;
    const size_t host = strcspn(from, "/?#");
    if (address_is_file(url)) return NULL;
    for (size_t i = 0; i < host; i++) at = from[i] == '@' ? from + i : at;
    if (!at && memchr(from, ':', host)) at = strrchr(from, '@');
    return at ? at + 1 : NULL;
}

bool address_has_password(const char *url) { return behind_password(url) != NULL; }

void address_shown(const char *url, char *out, size_t size) {
    const char *from = behind_scheme(url), *rest = behind_password(url);
    const char *shown = rest ? rest : from;
    const size_t n = address_is_file(url) ? strlen(shown) : strcspn(shown, "?#");
    snprintf(out, size, "%.*s%s%.*s%s", (int)(from - url), url, rest ? "***@" : "", (int)n, shown,
             shown[n] == '?' ? "?***" : "");
}

void address_scrub(const char *line, char *out, size_t size) {
    static const char ends[] = " \t'\"()<>";
    char word[1024], shown[1024];
    size_t used = 0;
    if (size) *out = 0;
    while (*line && used + 1 < size) {
        const size_t n = strcspn(line, ends), space = strspn(line + n, ends);
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), line);
        if (strstr(word, "://")) address_shown(word, shown, sizeof shown);
        else if (strchr(word, '@')) snprintf(shown, sizeof shown, "***%s", strrchr(word, '@'));
        else snprintf(shown, sizeof shown, "%s", word);
        snprintf(out + used, size - used, "%s%.*s", shown, (int)space, line + n);
        used += strlen(out + used);
        line += n + space;
    }
}
