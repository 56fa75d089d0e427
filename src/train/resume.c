#include "train/resume.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "checkpoint/same_run.h"

/* A folder that checkpoint.resume names. */
static dlrm_status check_given(const dlrm_config *cfg, const char *folder)
{
    dlrm_checkpoint_entry *list = NULL;
    char manifest[PATH_MAX];
    struct stat found;
    int n = 0;
    if (stat(folder, &found) != 0)
        return dlrm_config_fail(cfg, "checkpoint.resume", "cannot find \"%s\": %s; expected auto, never or a checkpoint's folder", folder,
                                strerror(errno));
    snprintf(manifest, sizeof manifest, "%.4000s/" DLRM_MANIFEST_NAME, folder);
    if (access(manifest, F_OK) == 0) return DLRM_OK;
    if (S_ISDIR(found.st_mode)) TRY(dlrm_checkpoints_list(folder, NULL, 0, &list, &n));
    dlrm_status st = n > 0 ? dlrm_config_fail(cfg, "checkpoint.resume", "found \"%s\", a folder of checkpoints; expected one of them, such as %s/%s",
                                              folder, folder, list[0].name)
                           : dlrm_config_fail(cfg, "checkpoint.resume", "found \"%s\", which is no checkpoint: there is no " DLRM_MANIFEST_NAME
                                              " in it; expected auto, never or a checkpoint's folder", folder);
    dlrm_free(&list);
    return st;
}

/* Rank 0: the folder by checkpoint.resume; "" where there is none. */
static dlrm_status choose(const dlrm_config *cfg, char *folder, size_t bytes)
{
    const char *resume = cfg->checkpoint.resume, *path = cfg->checkpoint.path;
    dlrm_checkpoint_entry *list;
    int n;
    folder[0] = 0;
    if (!strcmp(resume, "never")) return DLRM_OK;
    if (strcmp(resume, "auto") != 0) {
        snprintf(folder, bytes, "%s", resume);
        return check_given(cfg, resume);
    }
    if (!path) return DLRM_OK;
    TRY(dlrm_checkpoints_list(path, NULL, 0, &list, &n));
    if (n > 0) snprintf(folder, bytes, "%.4000s/%s", path, list[0].name);
    dlrm_free(&list);
    return DLRM_OK;
}

dlrm_status dlrm_resume_find(const dlrm_config *cfg, const dlrm_model_spec *spec, int64_t train_rows, dlrm_comm *comm, bool weights_only,
                             dlrm_resume *r)
{
    TRY(dlrm_comm_agree(comm, comm->rank == 0 ? choose(cfg, r->folder, sizeof r->folder) : DLRM_OK));
    dlrm_comm_bcast(comm, r->folder, sizeof r->folder, 0);
    if (!r->folder[0]) return DLRM_OK;
    dlrm_status st = dlrm_manifest_load(r->folder, &r->manifest);
    if (st == DLRM_OK) st = dlrm_run_check(r->manifest.run, r->folder, cfg, spec, train_rows, weights_only);
    return dlrm_comm_agree(comm, st);
}

void dlrm_resume_clear(dlrm_resume *r)
{
    dlrm_manifest_clear(&r->manifest);
    r->folder[0] = 0;
}
