/* The fault shim: journals every change a process makes under one folder, and kills it or fills its disk at the n-th.
 *
 * Preloaded, it installs a seccomp filter that turns each file-changing system call into a SIGSYS, whose handler
 * journals the call and then makes it. Interposing the C library's functions would be simpler, and would miss calls:
 * tantivy renames its meta.json with a bare instruction, without the library. Linux, aarch64 and x86_64.
 *
 *   SHIM_ROOT   the folder to watch, as an absolute path without links
 *   SHIM_LOG    the journal: one line per change, tab-separated (see power_loss.py, which reads it)
 *   SHIM_TRASH  a folder on the same disk; a file that loses its last name gets another there
 *   SHIM_FAULT  "<how>:<phase>:<kind>:<n>": at the n-th change of the kind (write, fsync, rename, unlink; any) in the
 *               phase (the name last given to shim_arm; any), kill before it happens, tear (kill after half of the
 *               write), or full (this write is cut short and every later one fails until shim_space is called)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* The sixth argument of a call the shim makes itself: no call it watches has six. */
#define PASS 0x5117a55eL
#define CALL(nr, a, b, c, d, e) syscall((nr), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), PASS)
#define ROOM 2048

#if defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#define ARGUMENT(u, i) ((long)(u)->uc_mcontext.regs[i])
#define RESULT(u) ((u)->uc_mcontext.regs[0])
#elif defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
static const int places[] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};
#define ARGUMENT(u, i) ((long)(u)->uc_mcontext.gregs[places[i]])
#define RESULT(u) ((u)->uc_mcontext.gregs[REG_RAX])
#else
#error "the fault shim knows aarch64 and x86_64 only"
#endif

static char root[ROOM], trash[ROOM], how[16], fault_phase[32], fault_kind[16], phase[32];
static size_t root_length;
static long fault_at, seen;
static int journal = -1, armed, full;
static volatile char busy;

static void take(void) {
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) syscall(SYS_sched_yield);
}

static void give(void) { __atomic_clear(&busy, __ATOMIC_RELEASE); }

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...) {
    char line[3 * ROOM];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    if (length >= (int)sizeof line) length = sizeof line - 1;
    CALL(SYS_write, journal, line, length, 0, 0);
}

static int inside(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    if (fd == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long length = syscall(SYS_readlinkat, AT_FDCWD, link, path, ROOM - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0 && inside(path);
}

/* The absolute form of a path given to an ...at call; true when it lies under the root. */
static int resolve(int fd, const char *given, char *path) {
    if (given[0] == '/') {
        snprintf(path, ROOM, "%s", given);
    } else {
        path_of(fd, path);
        size_t length = strlen(path);
        snprintf(path + length, ROOM - length, "/%s", given);
    }
    return inside(path);
}

static unsigned long inode(const char *path) {
    struct stat about;
    return fstatat(AT_FDCWD, path, &about, AT_SYMLINK_NOFOLLOW) == 0 ? about.st_ino : 0;
}

static unsigned long inode_of(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/* What loses its name here may have to come back: a rename or removal is undone by a power cut before the sync. */
static void keep(const char *path) {
    char kept[ROOM + 32];
    snprintf(kept, sizeof kept, "%s/%lu", trash, inode(path));
    CALL(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
}

static void die(const char *kind, const char *path) {
    note("K\t%s\t%s\t%s\n", phase, kind, path);
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
    for (;;) syscall(SYS_sched_yield);
}

/* True when this change is the one that fails. The -shm file is shared memory with a name: it survives nothing. */
static int strikes(const char *kind, const char *path) {
    size_t length = strlen(path);
    if (!armed || !how[0] || (length > 4 && strcmp(path + length - 4, "-shm") == 0)) return 0;
    if (strcmp(fault_phase, "any") && strcmp(fault_phase, phase)) return 0;
    if (strcmp(fault_kind, "any") && strcmp(fault_kind, kind)) return 0;
    return ++seen == fault_at;
}

static void strike(const char *kind, const char *path) {
    if (!strikes(kind, path)) return;
    if (strcmp(how, "full")) die(kind, path);
    full = 1;
}

static long gather(long nr, long *a, char **bytes) {
    if (nr == SYS_write || nr == SYS_pwrite64) {
        *bytes = (char *)a[1];
        return a[2];
    }
    const struct iovec *parts = (const struct iovec *)a[1];
    *bytes = a[2] > 0 ? parts[0].iov_base : NULL;
    return a[2] > 0 ? (long)parts[0].iov_len : 0;
}

/* Half of the bytes (of the first part, when there are several), where the whole write would have gone. */
static long half(long nr, long *a) {
    char *bytes;
    long length = gather(nr, a, &bytes) / 2;
    if (length == 0) return 0;
    if (nr == SYS_write || nr == SYS_writev) return CALL(SYS_write, a[0], bytes, length, 0, 0);
    return CALL(SYS_pwrite64, a[0], bytes, length, a[3], 0);
}

static long do_write(long nr, long *a) {
    char path[ROOM];
    int struck = 0;
    if (!path_of(a[0], path)) return CALL(nr, a[0], a[1], a[2], a[3], a[4]);
    take();
    if (full) {
        give();
        errno = ENOSPC;
        return -1;
    }
    if ((struck = strikes("write", path)) && strcmp(how, "kill") == 0) die("write", path);
    long done = struck ? half(nr, a) : CALL(nr, a[0], a[1], a[2], a[3], a[4]);
    int problem = errno;
    if (done > 0) {
        int placed = nr == SYS_pwrite64 || nr == SYS_pwritev;
        long offset = placed ? a[3] : syscall(SYS_lseek, a[0], 0L, (long)SEEK_CUR) - done;
        note("W\t%lu\t%ld\t%ld\t%s\n", inode_of(a[0]), offset, done, path);
    }
    if (struck && strcmp(how, "tear") == 0) die("write", path);
    if (struck) {
        full = 1;
        if (done <= 0) done = -1, problem = ENOSPC;
    }
    give();
    errno = problem;
    return done;
}

static long do_sync(long nr, long *a) {
    char path[ROOM];
    if (!path_of(a[0], path)) return CALL(nr, a[0], 0, 0, 0, 0);
    take();
    strike("fsync", path);
    long done = CALL(nr, a[0], 0, 0, 0, 0);
    if (done == 0) note("S\t%lu\t%s\n", inode_of(a[0]), path);
    give();
    return done;
}

static long do_truncate(long *a) {
    char path[ROOM];
    if (!path_of(a[0], path)) return CALL(SYS_ftruncate, a[0], a[1], 0, 0, 0);
    take();
    strike("write", path);
    long done = CALL(SYS_ftruncate, a[0], a[1], 0, 0, 0);
    if (done == 0) note("T\t%lu\t%ld\t%s\n", inode_of(a[0]), a[1], path);
    give();
    return done;
}

static long do_open(long *a) {
    char path[ROOM];
    if (!resolve(a[0], (const char *)a[1], path)) return CALL(SYS_openat, a[0], a[1], a[2], a[3], 0);
    take();
    if (inode(path)) strike("write", path);
    long fd = CALL(SYS_openat, a[0], a[1], a[2], a[3], 0);
    if (fd >= 0) note("T\t%lu\t0\t%s\n", inode_of(fd), path);
    give();
    return fd;
}

static long do_rename(int from, const char *old, int to, const char *new, long flags) {
    char source[ROOM], target[ROOM];
    int watched = resolve(from, old, source) | resolve(to, new, target);
    if (!watched) return CALL(SYS_renameat2, from, old, to, new, flags);
    take();
    strike("rename", target);
    unsigned long moved = inode(source);
    keep(target);
    long done = CALL(SYS_renameat2, from, old, to, new, flags);
    if (done == 0) note("R\t%lu\t%s\t%s\n", moved, source, target);
    give();
    return done;
}

static long do_unlink(int from, const char *given, long flags) {
    char path[ROOM];
    if (!resolve(from, given, path)) return CALL(SYS_unlinkat, from, given, flags, 0, 0);
    take();
    strike("unlink", path);
    unsigned long gone = inode(path);
    if (!(flags & AT_REMOVEDIR)) keep(path);
    long done = CALL(SYS_unlinkat, from, given, flags, 0, 0);
    if (done == 0) note("U\t%lu\t%s\n", gone, path);
    give();
    return done;
}

static long do_mkdir(int from, const char *given, long mode) {
    char path[ROOM];
    int watched = resolve(from, given, path);
    if (watched) take();
    long done = CALL(SYS_mkdirat, from, given, mode, 0, 0);
    if (watched && done == 0) note("D\t%lu\t%s\n", inode(path), path);
    if (watched) give();
    return done;
}

static long serve(long nr, long *a) {
    switch (nr) {
    case SYS_write: case SYS_writev: case SYS_pwrite64: case SYS_pwritev: return do_write(nr, a);
    case SYS_fsync: case SYS_fdatasync: return do_sync(nr, a);
    case SYS_ftruncate: return do_truncate(a);
    case SYS_openat: return do_open(a);
    case SYS_renameat: return do_rename(a[0], (char *)a[1], a[2], (char *)a[3], 0);
    case SYS_renameat2: return do_rename(a[0], (char *)a[1], a[2], (char *)a[3], a[4]);
    case SYS_unlinkat: return do_unlink(a[0], (char *)a[1], a[2]);
    case SYS_mkdirat: return do_mkdir(a[0], (char *)a[1], a[2]);
#if defined(__x86_64__)
    case SYS_rename: return do_rename(AT_FDCWD, (char *)a[0], AT_FDCWD, (char *)a[1], 0);
    case SYS_unlink: return do_unlink(AT_FDCWD, (char *)a[0], 0);
    case SYS_rmdir: return do_unlink(AT_FDCWD, (char *)a[0], AT_REMOVEDIR);
    case SYS_mkdir: return do_mkdir(AT_FDCWD, (char *)a[0], a[1]);
#endif
    default: errno = ENOSYS; return -1;
    }
}

static void on_call(int signal, siginfo_t *about, void *context) {
    ucontext_t *user = context;
    int before = errno;
    long a[6];
    (void)signal;
    for (int i = 0; i < 6; i++) a[i] = ARGUMENT(user, i);
    long done = serve(about->si_syscall, a);
    RESULT(user) = done == -1 ? -errno : done;
    errno = before;
}

static const int trapped[] = {
    SYS_write, SYS_writev, SYS_pwrite64, SYS_pwritev, SYS_fsync, SYS_fdatasync, SYS_ftruncate, SYS_renameat,
    SYS_renameat2, SYS_unlinkat, SYS_mkdirat,
#if defined(__x86_64__)
    SYS_rename, SYS_unlink, SYS_rmdir, SYS_mkdir,
#endif
};

/* Other ways to change a file: refused, so that callers take a watched one, or fail loudly and get it watched. */
static const int refused[] = {SYS_sendfile, SYS_copy_file_range, SYS_splice, SYS_pwritev2, SYS_fallocate,
                              SYS_truncate, SYS_linkat, SYS_io_uring_setup,
#if defined(__x86_64__)
                              SYS_creat, SYS_link,
#endif
};

static int install(void) {
    struct sock_filter f[96];
    unsigned short n = 0;
    size_t i;
    const unsigned sixth = offsetof(struct seccomp_data, args[5]), flags = offsetof(struct seccomp_data, args[2]);
#define ADD(...) f[n++] = (struct sock_filter)__VA_ARGS__
#define LOAD(at) ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at)))
#define WHEN(value, skip) ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), 0, (skip)))
#define ANSWER(value) ADD(BPF_STMT(BPF_RET | BPF_K, (value)))
    LOAD(offsetof(struct seccomp_data, arch));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
    ANSWER(SECCOMP_RET_ALLOW);
    LOAD(sixth);
    WHEN(PASS, 1);
    ANSWER(SECCOMP_RET_ALLOW);
    LOAD(offsetof(struct seccomp_data, nr));
    for (i = 0; i < sizeof trapped / sizeof *trapped; i++) {
        WHEN(trapped[i], 1);
        ANSWER(SECCOMP_RET_TRAP);
    }
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        WHEN(refused[i], 1);
        ANSWER(SECCOMP_RET_ERRNO | ENOSYS);
    }
    WHEN(SYS_openat, 3);
    LOAD(flags);
    ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TRUNC, 0, 1));
    ANSWER(SECCOMP_RET_TRAP);
    ANSWER(SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = n, .filter = f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

__attribute__((constructor)) static void start(void) {
    if (!*setting("SHIM_ROOT")) return;
    snprintf(root, sizeof root, "%s", setting("SHIM_ROOT"));
    snprintf(trash, sizeof trash, "%s", setting("SHIM_TRASH"));
    root_length = strlen(root);
    journal = open(setting("SHIM_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    sscanf(setting("SHIM_FAULT"), "%15[^:]:%31[^:]:%15[^:]:%ld", how, fault_phase, fault_kind, &fault_at);
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_RESTART};
    /* Another signal waits: Python's handlers write to a pipe, and a watched call within this handler would be the end. */
    sigfillset(&action.sa_mask);
    if (journal < 0 || sigaction(SIGSYS, &action, NULL) || install()) {
        fprintf(stderr, "fault shim: cannot start: %s\n", strerror(errno));
        _exit(97);
    }
}

/* From here on changes count, under this name. */
void shim_arm(const char *name) {
    take();
    snprintf(phase, sizeof phase, "%s", name);
    armed = 1;
    note("P\t%s\n", name);
    give();
}

/* The full disk has room again. */
void shim_space(void) { full = 0; }

/* Whether the disk is full. */
int shim_full(void) { return full; }
