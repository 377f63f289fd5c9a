/* run_directory.c - locks a run's directory, and gives it up.
 *
 * The lock is on metrics.jsonl, which is made first and removed last. A process reads and changes other files only while
 * it holds the lock, so of several processes that start a run there, one succeeds and the others change nothing. */
#include "train/run_parts.h"

#include "support/directory.h"
#include "support/run_format.h"
#include "core/file.h"
#include "core/error.h"
#include "train/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char lock_name[] = "metrics.jsonl", recipe_name[] = "recipe.yaml", checkpoints_name[] = "checkpoints",
                  note_name[] = "note.txt"; /* people's own */

/* ---- What is there ----------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *name, const char *const *names) {
    while (names && *names && strcmp(name, *names) != 0) names++;
    return names && *names;
}

static bool is_temporary(const char *name) { return text_begins(name, ".adamod-") || text_begins(name, ".ranks-"); }

/* Whether a run without a checkpoint may have a file of this name. */
static bool is_runs(const char *name, const task *const *tasks) {
    static const char *const names[] = {"recipe.yaml",      "machine.json",  "task.json", "data.json", "metrics.jsonl",
                                        "histograms.jsonl", "samples.jsonl", note_name,   NULL};
    int number, used = 0;
    for (; tasks && *tasks; tasks++) {
        if (is_one_of(name, (*tasks)->saves)) return true;
    }
    if (sscanf(name, "machine.%d.json%n", &number, &used) == 1 && used && !name[used]) return true;
    return is_one_of(name, names) || text_begins(name, "events.out.tfevents.") || is_temporary(name);
}

/* Whether "checkpoints" has nothing but temporary files of a killed writer. */
static bool has_no_checkpoints(int parent) {
    const int fd = openat(parent, checkpoints_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    bool none = d != NULL;
    for (struct dirent *e; none && (e = readdir(d));) {
        none = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || is_temporary(e->d_name) ||
               strstr(e->d_name, ".safetensors.tmp.");
    }
    if (d) closedir(d);
    return none;
}

typedef enum contents { NOTHING, UNBEGUN, OTHERS, UNREADABLE } contents;

/* Files without metrics.jsonl, which is made first, are not a run's. Earlier versions made "checkpoints" before it. */
static contents look(const char *directory, const task *const *tasks) {
    DIR *d = opendir(directory);
    struct stat st;
    contents found = NOTHING;
    bool locked = false, files = false;
    if (!d) return UNREADABLE;
    for (struct dirent *e; found != OTHERS && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        found = UNBEGUN;
        if (strcmp(e->d_name, checkpoints_name) == 0) {
            if (!has_no_checkpoints(dirfd(d))) found = OTHERS;
            continue;
        }
        const bool file = fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
        if (!file || !is_runs(e->d_name, tasks)) found = OTHERS;
        locked |= strcmp(e->d_name, lock_name) == 0;
        files = true;
    }
    closedir(d);
    return found == UNBEGUN && files && !locked ? OTHERS : found;
}

bool run_is_unbegun(const char *directory, const recipe *r) {
    const contents found = look(directory, r->tasks);
    return found == NOTHING || found == UNBEGUN;
}

/* ---- The lock ---------------------------------------------------------------------------------------------------- */

static bool is_at(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int fail_in_use(const run *r) { return adamod__refuse("%s is in use by another process", r->directory); }

static void let_go(run *r) {
    run_file *f = &r->file[RUN_METRICS];
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    f->made = r->owned = false;
}

/* Returns 1 to try again: the owner may have removed the file between opening and locking. On file systems without locks,
 * the process that makes the file owns it. */
static int lock(run *r, const char *path) {
    run_file *f = &r->file[RUN_METRICS];
    const int status = run_open_file(r, RUN_METRICS);
    if (status) return status;
    const int error = flock(f->fd, LOCK_EX | LOCK_NB) ? errno : 0;
    if (error == EWOULDBLOCK) return let_go(r), fail_in_use(r);
    r->owned = !error || f->made;
    if (is_at(f->fd, path)) return 0;
    return let_go(r), fail_in_use(r), 1;
}

enum { TRIES = 100 }; /* a try fails if another process comes or goes meanwhile */

static int fail_not_empty(const run *r) {
    return adamod__refuse("%s exists and is not empty: choose another --out, or --resume to continue it", r->directory);
}

/* Makes the directory and refuses one with other files. Returns 1 to try again, unless last_time: files of another process
 * may come and go. */
static int prepare(run *r, const char *path, bool last_time) {
    bool made = false;
    const int error = directory_make(r->directory, &made);
    if (error) return adamod__fail(ADAMOD_ERROR_IO, "%s: cannot make the directory: %s", r->directory, strerror(error));
    r->made |= made;
    if (access(path, F_OK) == 0) return 0;
    const contents found = look(r->directory, r->recipe.tasks);
    if (found == UNREADABLE) {
        const int gone = errno == ENOENT;
        return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", r->directory, strerror(errno)), gone ? 1 : -1;
    }
    if (found != OTHERS) return 0;
    return fail_not_empty(r), access(path, F_OK) == 0 || !last_time ? 1 : -1;
}

static int take_lock(run *r) {
    const path_text path = path_join(r->directory, lock_name);
    int status = 1;
    for (int i = 0; status > 0 && i < TRIES; i++) {
        status = r->resume ? 0 : prepare(r, path.text, i >= 3);
        if (!status) status = lock(r, path.text);
    }
    return status ? -1 : 0;
}

/* ---- Taking it --------------------------------------------------------------------------------------------------- */

/* Whether metrics.jsonl is this program's, and may be replaced. */
static bool is_own(const run_file *f) {
    static const char beginning[] = "{\"kind\":\"";
    char text[sizeof beginning - 1] = "";
    uint64_t got = 0;
    return adamod__file_read(f->fd, 0, text, sizeof text, &got) == 0 && memcmp(text, beginning, (size_t)got) == 0;
}

static int remove_at(const run *r, int directory, const char *name) {
    return unlinkat(directory, name, 0) && errno != ENOENT ? run_fail_at(r, name, "cannot remove", errno) : 0;
}

/* Removes temporary files of killed writers. */
static int clear_checkpoints(const run *r) {
    const path_text path = path_join(r->directory, checkpoints_name);
    return access(path.text, F_OK) == 0 ? checkpoint_prune(path.text, SIZE_MAX, NULL, NULL) : 0;
}

/* Removes the files of a run without a checkpoint. The recipe stays until the new one replaces it, as it may be the one
 * that was just read. */
static int clear(run *r) {
    run_file *f = &r->file[RUN_METRICS];
    DIR *d = opendir(r->directory);
    int status = d ? 0 : adamod__fail(ADAMOD_ERROR_IO, "%s: %s", r->directory, strerror(errno));
    for (struct dirent *e; !status && (e = readdir(d));) {
        const char *name = e->d_name;
        if (text_begins(name, ".adamod-") || !is_runs(name, r->recipe.tasks)) continue;
        if (strcmp(name, lock_name) == 0 || strcmp(name, note_name) == 0) continue;
        r->again = true;
        if (strcmp(name, recipe_name) == 0) r->had_recipe = true;
        else status = remove_at(r, dirfd(d), name);
    }
    if (d) closedir(d);
    if (status || clear_checkpoints(r)) return -1;
    adamod__file_clean(r->directory);
    const int error = f->size ? adamod__file_cut(f->fd, 0) : 0;
    if (error) return run_fail_at(r, f->name, "cannot truncate", error);
    f->size = 0;
    r->cleared = true;
    return 0;
}

int run_take_new(run *r) {
    if (take_lock(r)) return -1;
    const contents found = look(r->directory, r->recipe.tasks);
    if (found == UNREADABLE) return adamod__fail(ADAMOD_ERROR_IO, "%s: %s", r->directory, strerror(errno));
    if (found == OTHERS || !r->owned || !is_own(&r->file[RUN_METRICS])) return fail_not_empty(r);
    return clear(r);
}

int run_take_existing(run *r) {
    if (run_format_check(r->directory)) return -1;
    if (access(path_join(r->directory, recipe_name).text, F_OK))
        return adamod__fail(ADAMOD_ERROR_IO, "%s: no run to resume: recipe.yaml: %s", r->directory, strerror(errno));
    return take_lock(r);
}

/* ---- Giving it up ------------------------------------------------------------------------------------------------ */

static void remove_own(const run *r, const char *name) { (void)remove(path_join(r->directory, name).text); }

void run_give_up(run *r) {
    static const char *const others[] = {"machine.json", "task.json"};
    if (!r->owned) return;
    for (int i = 0; r->cleared && i < 2; i++) remove_own(r, others[i]);
    if (r->cleared && !r->had_recipe) remove_own(r, recipe_name);
    if (r->made_checkpoints) remove_own(r, checkpoints_name);
    for (int i = RUN_FILES - 1; i >= 0; i--) { /* metrics.jsonl last */
        if (r->file[i].made) remove_own(r, r->file[i].name);
    }
    if (r->made) (void)rmdir(r->directory);
}
