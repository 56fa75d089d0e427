#include "comm/same_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static dlrm_status make_probe(const char *folder, char probe[PATH_MAX])
{
    snprintf(probe, PATH_MAX, "%.3900s/.probe_%d_%lld", folder, (int)getpid(), (long long)time(NULL));
    const int fd = open(probe, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0) return FAIL(DLRM_E_INPUT, "%s: cannot create: %s", probe, strerror(errno));
    close(fd);
    return DLRM_OK;
}

dlrm_status dlrm_same_folder_check(dlrm_comm *c, const char *key, const char *folder)
{
    char probe[PATH_MAX] = "";
    TRY(dlrm_comm_agree(c, c->rank == 0 ? make_probe(folder, probe) : DLRM_OK));
    dlrm_comm_bcast(c, probe, sizeof probe, 0);
    dlrm_status st = DLRM_OK;
    if (access(probe, F_OK) != 0 || access(folder, W_OK | X_OK) != 0)
        st = FAIL(DLRM_E_INPUT, "%s: rank %d cannot see what rank 0 writes to %s, or not write there itself (%s); all ranks need the same file system", key,
                  c->rank, folder, strerror(errno));
    st = dlrm_comm_agree(c, st);
    if (c->rank == 0) unlink(probe);
    return st;
}
