#include "records_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *dlrm_record_file_name(int split)
{
    static const char *const names[] = {"train_data.bin", "test_data.bin", "val_data.bin"};
    return names[split];
}

/* --- folders of others --- */

static bool ends_in(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

static bool is_split(const char *name, const char *split)
{
    char usual[32], data[32];
    snprintf(usual, sizeof usual, "%s.bin", split);
    snprintf(data, sizeof data, "%s_data.bin", split);
    return strcmp(name, data) == 0 || strcmp(name, usual) == 0 || (ends_in(name, usual) && name[strlen(name) - strlen(usual) - 1] == '_');
}

bool dlrm_record_files_find(const char *path, dlrm_format format, dlrm_record_files *out)
{
    struct stat st;
    *out = (dlrm_record_files){.format = format};
    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) {
        snprintf(out->path[DLRM_TRAIN], DLRM_PATH_MAX, "%s", path);
        return true;
    }
    DIR *dir = opendir(path);
    if (!dir) return false;
    char found[DLRM_OUT_SPLITS][DLRM_PATH_MAX] = {"", "", ""};
    static const char *const names[] = {"train", "test", "val"};
    for (struct dirent *e; (e = readdir(dir));)
        for (int i = 0; i < DLRM_OUT_SPLITS; i++)
            if (is_split(e->d_name, names[i])) snprintf(found[i], DLRM_PATH_MAX, "%s/%s", path, e->d_name);
    closedir(dir);
    for (int i = 0; i < DLRM_OUT_SPLITS; i++) memcpy(out->path[i], found[i], DLRM_PATH_MAX);
    return *out->path[DLRM_TRAIN] || *out->path[DLRM_TEST];
}

/* --- the description --- */

/* As a double-quoted text of YAML. */
static void write_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < ' ')
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

dlrm_status dlrm_records_describe(const char *folder, dlrm_format format, const dlrm_shape *shape, const int64_t rows[DLRM_OUT_SPLITS])
{
    char path[DLRM_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out) return FAIL(DLRM_E_RUNTIME, "cannot allocate memory for %s", dlrm_records_description);
    fprintf(out, "format: %s\ndense_features: %d\ndense: %s\nfiles:\n", dlrm_format_names[format], shape->n_dense,
            dlrm_form_names[shape->form]);
    for (int s = 0; s < DLRM_OUT_SPLITS; s++)
        if (rows[s] > 0)
            fprintf(out, "  %s: {name: %s, rows: %lld}\n", dlrm_out_split_names[s], dlrm_record_file_name(s), (long long)rows[s]);
    fprintf(out, "tables: # as model.tables of a config\n");
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_feature *feature = &shape->features[f];
        fputs("- {name: ", out);
        write_quoted(out, feature->name);
        fprintf(out, ", rows: %lld, hotness: %d}\n", (long long)feature->cardinality, feature->hotness);
    }
    fclose(out);
    dlrm_status st = dlrm_tool_path(path, "%s/%s", folder, dlrm_records_description);
    if (st == DLRM_OK) st = dlrm_tool_write_text(path, text);
    free(text);
    return st;
}

static dlrm_status take_shape(const dlrm_records_spec *r, dlrm_shape *shape)
{
    TRY(dlrm_shape_open(r->features.n_dense, r->features.n_categorical, shape));
    shape->form = r->form;
    for (int f = 0; f < shape->n_features; f++) {
        const dlrm_categorical *from = &r->features.categorical[f];
        dlrm_feature *to = &shape->features[f];
        snprintf(to->name, sizeof to->name, "%s", from->name);
        to->cardinality = from->cardinality;
        to->hotness = from->hotness;
    }
    dlrm_shape_settle(shape);
    return DLRM_OK;
}

dlrm_status dlrm_records_load(const char *folder, dlrm_record_files *files, dlrm_shape *shape)
{
    dlrm_records_spec r;
    *files = (dlrm_record_files){0};
    *shape = (dlrm_shape){0};
    TRY(dlrm_records_spec_load(folder, &r));
    files->format = r.hugectr_raw ? DLRM_FORMAT_HUGECTR_RAW : DLRM_FORMAT_MLPERF_BIN;
    dlrm_status st = take_shape(&r, shape);
    for (int s = 0; st == DLRM_OK && s < DLRM_OUT_SPLITS; s++) {
        files->rows[s] = r.rows[s];
        if (r.file[s]) st = dlrm_tool_path(files->path[s], "%s/%s", folder, r.file[s]);
    }
    dlrm_records_spec_clear(&r);
    return st;
}
