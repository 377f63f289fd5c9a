#include "data/sets/download.h"

#include "support/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "support/functions.h"
#include "data/sets/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef ADAMOD_CURL
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

/* ---- libcurl ---- */

#define FUNCTIONS(F)                                                                                                   \
    F(global_init, curl_global_init)                                                                                   \
    F(init, curl_easy_init)                                                                                            \
    F(set, curl_easy_setopt)                                                                                           \
    F(perform, curl_easy_perform)                                                                                      \
    F(get, curl_easy_getinfo)                                                                                          \
    F(error, curl_easy_strerror)                                                                                       \
    F(cleanup, curl_easy_cleanup)

static struct {
    void *library;
    FUNCTIONS(FUNCTION_FIELD)
} curl;

static int load_curl(void) {
    static const char *const names[] = {"libcurl.so.4", NULL};
#define PLACE(field, name) {#name, &curl.field},
    const function_place functions[] = {FUNCTIONS(PLACE){NULL, NULL}};
    if (curl.library) return 0;
    void *library = functions_load(names, "ADAMOD_CURL_LIBRARY", functions, NULL);
    if (library && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) {
        curl.library = library;
        return 0;
    }
    if (library) adamod__refuse("curl_global_init fails");
    return adamod__context("downloads need libcurl (Debian: libcurl4), which cannot be used: ");
}

/* ---- one request ---- */

typedef struct transfer {
    const download *d;
    char shown[512]; /* the address, for messages */
    CURL *handle;
    int fd;
    int64_t asked;   /* first byte requested */
    int64_t at;      /* bytes so far */
    int64_t total;   /* size of the file by the server; -1: not known */
    int64_t start;   /* first byte of the range sent; -1: no range */
    int64_t refused; /* bytes of an answer that is not the file */
    bool begun, no_file, stalled;
    int64_t seen; /* bytes at the last progress, and its time */
    double when;
    int error;        /* of writing */
    char reason[384]; /* why the transfer was ended */
} transfer;

static size_t give_up(transfer *t, const char *format, long long a, long long b) {
    snprintf(t->reason, sizeof t->reason, format, a, b); /* NOLINT: of this file alone */
    return 0;
}

static bool is_http(const transfer *t) { return !address_is_file(t->d->url); }

static long response_code(const transfer *t) {
    long code = 0;
    curl.get(t->handle, CURLINFO_RESPONSE_CODE, &code);
    return code;
}

/* "Content-Range: bytes 5-99/100", or "bytes *" "/100" for an invalid range. */
static size_t on_header(char *line, size_t size, size_t n, void *context) {
    transfer *t = context;
    static const char name[] = "content-range:";
    char text[128];
    long long first = -1, total = -1;
    n *= size;
    snprintf(text, sizeof text, "%.*s", (int)(n < 127 ? n : 127), line);
    if (strncmp(text, "HTTP/", 5) == 0) t->start = t->total = -1; /* those before are of a redirection */
    if (strncasecmp(text, name, sizeof name - 1) != 0) return n;
    const char *at = text + sizeof name - 1;
    if (sscanf(at, " bytes %lld-%*d/%lld", &first, &total) < 1) (void)sscanf(at, " bytes */%lld", &total);
    t->start = first;
    t->total = total;
    return n;
}

/* Whether the size by the server, if known, is possible. */
static bool may_be_it(transfer *t) {
    if (t->d->size && t->total >= 0 && t->total != t->d->size)
        return give_up(t, "the server has %lld bytes, expected %lld", t->total, t->d->size) != 0;
    if (!t->d->size && t->total > t->d->most)
        return give_up(t, "the server has %lld bytes, expected at most %lld", t->total, t->d->most) != 0;
    return true;
}

/* Called at the first bytes: checks whether they are of the file, and from where. Earlier bytes are dropped only for an answer
 * that may be the file. */
static bool begin(transfer *t) {
    const long code = response_code(t);
    curl_off_t length = -1;
    t->begun = true;
    curl.get(t->handle, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (code == 206) {
        if (t->start != t->asked)
            return give_up(t, "the server sends bytes from %lld on, asked for those from %lld", t->start, t->asked) !=
                   0;
    } else if (code == 200 || !is_http(t)) {
        t->total = (int64_t)length;
        if (!may_be_it(t)) return false;
        if (t->at > 0 && (t->error = adamod__file_cut(t->fd, 0))) return false;
        t->at = 0;
    } else {
        t->no_file = true;
        return true;
    }
    if (t->total < 0 && length >= 0) t->total = t->at + (int64_t)length;
    return may_be_it(t);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *context) {
    transfer *t = context;
    n *= size;
    if (!t->begun && !begin(t)) return 0;
    if (t->no_file) return (t->refused += (int64_t)n) < 65536 ? n : 0;
    const int64_t most = t->d->size ? t->d->size : t->total >= 0 ? t->total : t->d->most;
    if (t->at + (int64_t)n > most) return give_up(t, "the server sends more than the %lld bytes expected", most, 0);
    for (size_t done = 0; done < n;) {
        const ssize_t put = pwrite(t->fd, bytes + done, n - done, (off_t)t->at);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            t->error = put < 0 ? errno : EIO;
            return 0;
        }
        done += (size_t)put;
        t->at += put;
    }
    return n;
}

static int on_progress(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up) {
    transfer *t = context;
    (void)total, (void)now, (void)up_total, (void)up;
    const double time_now = clock_seconds();
    if (t->at != t->seen || t->when == 0) {
        t->seen = t->at;
        t->when = time_now;
    }
    t->stalled = time_now - t->when > t->d->timeout;
    if (t->d->progress) t->d->progress(t->d->context, t->at, t->d->size ? t->d->size : t->total > 0 ? t->total : 0);
    return t->stalled;
}

/* A redirection must not lead to a file of this machine, nor from https to http. */
static bool limit_protocols(CURL *h, bool secure) {
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl.set(h, CURLOPT_PROTOCOLS_STR, "http,https,file") == CURLE_OK &&
           curl.set(h, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https") == CURLE_OK;
#else
    const long redirected = secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS;
    return curl.set(h, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS | CURLPROTO_FILE)) == CURLE_OK &&
           curl.set(h, CURLOPT_REDIR_PROTOCOLS, redirected) == CURLE_OK;
#endif
}

static bool set_options(transfer *t, char *error) {
    CURL *h = t->handle;
    char range[32], agent[64];
    snprintf(agent, sizeof agent, "adamod/%s", adamod_version_string());
    curl.set(h, CURLOPT_URL, t->d->url);
    curl.set(h, CURLOPT_ERRORBUFFER, error);
    curl.set(h, CURLOPT_NOSIGNAL, 1L);
    curl.set(h, CURLOPT_USERAGENT, agent);
    curl.set(h, CURLOPT_FOLLOWLOCATION, 1L);
    curl.set(h, CURLOPT_MAXREDIRS, 10L);
    curl.set(h, CURLOPT_CONNECTTIMEOUT_MS, (long)(t->d->timeout * 1000));
    curl.set(h, CURLOPT_LOW_SPEED_LIMIT, (long)DOWNLOAD_SLOWEST);
    curl.set(h, CURLOPT_LOW_SPEED_TIME, (long)(t->d->timeout + 0.5));
    curl.set(h, CURLOPT_HEADERFUNCTION, on_header);
    curl.set(h, CURLOPT_HEADERDATA, t);
    curl.set(h, CURLOPT_WRITEFUNCTION, on_body);
    curl.set(h, CURLOPT_WRITEDATA, t);
    curl.set(h, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl.set(h, CURLOPT_XFERINFODATA, t);
    curl.set(h, CURLOPT_NOPROGRESS, 0L);
    if (t->asked > 0 && is_http(t)) {
        snprintf(range, sizeof range, "%lld-", (long long)t->asked);
        curl.set(h, CURLOPT_RANGE, range);
    }
    /* As the program curl does, for proxies with their own certificates. */
    const char *trusted = getenv("CURL_CA_BUNDLE");
    if (!trusted || !*trusted) trusted = getenv("SSL_CERT_FILE");
    if (trusted && *trusted) curl.set(h, CURLOPT_CAINFO, trusted);
    return limit_protocols(h, address_is_secure(t->d->url));
}

typedef enum outcome { WHOLE, AGAIN, STALLED, FROM_START, OTHER_ADDRESS, NO_MORE } outcome;

/* Writes why a request ended. libcurl's text may contain addresses. */
static void explain(const transfer *t, CURLcode code, const char *error, char *out, size_t size) {
    if (t->stalled) snprintf(out, size, "no data came for %g seconds", t->d->timeout);
    else if (t->begun && code == CURLE_OPERATION_TIMEDOUT)
        snprintf(out, size, "fewer than %d bytes a second came for %g seconds", DOWNLOAD_SLOWEST, t->d->timeout);
    else if (code == CURLE_UNSUPPORTED_PROTOCOL && response_code(t) / 100 == 3)
        snprintf(out, size, "the server leads to another address, which is %s",
                 address_is_secure(t->d->url) ? "not https" : "neither http nor https");
    else if (*error && !address_has_password(t->d->url)) address_scrub(error, out, size);
    else snprintf(out, size, "%s", curl.error(code));
}

/* Sets the message of a request that ended and says how to go on. */
static outcome judge(transfer *t, CURLcode code, const char *error) {
    const long status = response_code(t);
    const download *d = t->d;
    const char *again = t->at > 0 ? "; repeat the command to continue the download" : "";
    char why[CURL_ERROR_SIZE + 64];
    if (t->error) {
        adamod__fail(ADAMOD_ERROR_IO, "%s: cannot write: %s; %lld bytes are kept", d->path, strerror(t->error),
                     (long long)t->at);
        return NO_MORE;
    }
    if (*t->reason) {
        adamod__refuse("%s: %s", t->shown, t->reason);
        return OTHER_ADDRESS;
    }
    if (status == 416 && t->asked > 0) {
        return t->total == t->asked ? WHOLE : FROM_START;
    }
    const bool answered = code == CURLE_OK || code == CURLE_WRITE_ERROR;
    if (is_http(t) && answered && status != 200 && status != 206) {
        adamod__refuse("%s: the server answers with status %ld%s", t->shown, status,
                       status == 404 || status == 410 ? ": it has no such file" : "");
        return OTHER_ADDRESS;
    }
    if (code == CURLE_OK && t->begun && (!d->size || t->at == d->size)) return WHOLE;
    if (code == CURLE_OK) {
        adamod__refuse("%s: the server's answer ended after %lld bytes%s", t->shown, (long long)t->at, again);
        return AGAIN;
    }
    explain(t, code, error, why, sizeof why);
    adamod__refuse("%s: %s%s", t->shown, why, again);
    if (t->stalled || code == CURLE_OPERATION_TIMEDOUT) return STALLED;
    return code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING ||
                   code == CURLE_SEND_ERROR
               ? AGAIN
               : OTHER_ADDRESS;
}

static outcome request(const download *d, int fd, int64_t *have) {
    char error[CURL_ERROR_SIZE] = "";
    transfer t = {.d = d, .fd = fd, .asked = *have, .at = *have, .total = -1, .start = -1, .handle = curl.init()};
    address_shown(d->url, t.shown, sizeof t.shown);
    if (!t.handle || !set_options(&t, error)) {
        adamod__refuse("%s: %s", t.shown,
                       t.handle ? "libcurl is older than the one this program was built for" : "out of memory");
        if (t.handle) curl.cleanup(t.handle);
        return NO_MORE;
    }
    const CURLcode code = curl.perform(t.handle);
    const outcome result = judge(&t, code, error);
    curl.cleanup(t.handle);
    *have = t.at;
    return result;
}

/* A request that stalls is repeated only if it fetched at least this many bytes: with fewer, the download would take
 * days. */
enum { LITTLE = 1 << 20 };

static void pause_for(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

download_result download_run(const download *d, int fd, bool *resumed) {
    struct stat st;
    int idle = 0; /* consecutive requests without progress */
    *resumed = false;
    if (load_curl()) return DOWNLOAD_STOPPED;
    if (fstat(fd, &st)) {
        adamod__fail(ADAMOD_ERROR_IO, "%s: cannot get its size: %s", d->path, strerror(errno));
        return DOWNLOAD_STOPPED;
    }
    int64_t have = (int64_t)st.st_size;
    if (d->size && have > d->size) have = adamod__file_cut(fd, 0) ? have : 0;
    *resumed = have > 0;
    if (d->size && have == d->size) return DOWNLOAD_DONE;
    while (idle < 2) {
        const int64_t before = have;
        const outcome o = request(d, fd, &have);
        if (o == NO_MORE) return DOWNLOAD_STOPPED;
        if (o == OTHER_ADDRESS) return DOWNLOAD_FAILED;
        if (o == WHOLE) {
            const int error = adamod__file_sync(fd);
            if (!error) return DOWNLOAD_DONE;
            adamod__fail(ADAMOD_ERROR_IO, "%s: cannot write: %s", d->path, strerror(error));
            return DOWNLOAD_STOPPED;
        }
        if (o == FROM_START) have = adamod__file_cut(fd, 0) ? have : 0;
        idle = have - before > (o == STALLED ? LITTLE : 0) ? 0 : idle + 1;
        *resumed = *resumed || have > 0;
        if (idle == 1) pause_for(0.3);
    }
    return DOWNLOAD_FAILED;
}

#else

download_result download_run(const download *d, int fd, bool *resumed) {
    (void)d, (void)fd;
    *resumed = false;
    adamod__refuse("downloads need libcurl, which this program was built without (Debian: libcurl4-openssl-dev)");
    return DOWNLOAD_STOPPED;
}

#endif
