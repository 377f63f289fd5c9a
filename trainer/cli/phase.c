#include "cli/phase.h"

#include "support/clock.h"
#include "core/thread.h"
#include "cli/cli.h"
#include "train/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool started, over;
    const char *command;
    char what[256];
    double begun;
} now = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void show(bool live) {
    char line[512], duration[32];
    if (live) {
        snprintf(line, sizeof line, "%s: %s, %s", now.command, now.what,
                 progress_duration(clock_seconds() - now.begun, duration));
        progress_draw(line);
    } else {
        fprintf(stderr, "adamod: %s: %s\n", now.command, now.what);
    }
}

/* Writes once a second on a terminal, which disturbs no measurement; elsewhere only once. */
static void *tell(void *unused) {
    const bool live = isatty(STDERR_FILENO);
    bool told = false;
    (void)unused;
    pthread_mutex_lock(&now.lock);
    while (!now.over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        const bool timed_out = pthread_cond_timedwait(&now.wake, &now.lock, &until) != 0;
        if (!timed_out || now.over || (told && !live)) continue;
        show(live);
        told = true;
    }
    if (told && live) progress_clear();
    pthread_mutex_unlock(&now.lock);
    return NULL;
}

void phase_begin(const char *command, const char *format, ...) {
    va_list arguments;
    phase_end();
    cli_before_messages(phase_end);
    now.command = command;
    now.begun = clock_seconds();
    now.over = false;
    va_start(arguments, format);
    vsnprintf(now.what, sizeof now.what, format, arguments);
    va_end(arguments);
    now.started = adamod__start_thread(&now.thread, tell, NULL) == 0;
}

void phase_end(void) {
    if (!now.started) return;
    pthread_mutex_lock(&now.lock);
    now.over = true;
    pthread_cond_signal(&now.wake);
    pthread_mutex_unlock(&now.lock);
    pthread_join(now.thread, NULL);
    now.started = false;
}
