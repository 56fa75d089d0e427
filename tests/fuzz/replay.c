/* Where no fuzzer is linked: runs a fuzz target once over every file of the folders named, so that the corpus is a
 * regression test of every build. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) return perror(path), -1;
    long size = ftell(f);
    rewind(f);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1); /* exactly as large: an overrun is seen */
    int ok = data && fread(data, 1, (size_t)size, f) == (size_t)size;
    if (!ok) perror(path);
    fclose(f);
    if (ok) LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return ok ? 0 : -1;
}

int main(int argc, char **argv)
{
    int files = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) return perror(argv[i]), 1;
        for (struct dirent *e; (e = readdir(d));)
            if (e->d_name[0] != '.') {
                if (replay_file(argv[i], e->d_name) != 0) return 1;
                files++;
            }
        closedir(d);
    }
    printf("%d files\n", files);
    return files == 0; /* an empty corpus is a mistake */
}
