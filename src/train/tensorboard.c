#include "train/tensorboard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"

/* --- protocol buffers --- */

enum { MOST_TAG = 300 };

/* Grows as it is written. */
typedef struct message {
    uint8_t *bytes;
    size_t n, room;
    bool failed; /* there was no memory: it is not whole */
} message;

static void put_bytes(message *m, const void *data, size_t n)
{
    if (m->room - m->n < n) {
        const size_t room = 2 * (m->n + n);
        uint8_t *larger = m->failed ? NULL : realloc(m->bytes, room);
        if (!larger) {
            m->failed = true;
            return;
        }
        m->bytes = larger;
        m->room = room;
    }
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t v)
{
    uint8_t bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7) bytes[n++] = (uint8_t)(v | 0x80);
    bytes[n++] = (uint8_t)v;
    put_bytes(m, bytes, n);
}

/* Field number and wire type: 0 an integer, 1 eight bytes, 2 bytes with their number before them, 5 four bytes. */
static void put_key(message *m, int field, int type)
{
    put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_text(message *m, int field, const char *text, size_t n)
{
    put_key(m, field, 2);
    put_varint(m, n);
    put_bytes(m, text, n);
}

static size_t varint_bytes(uint64_t v)
{
    size_t n = 1;
    for (; v >= 0x80; v >>= 7) n++;
    return n;
}

/* Summary.value { tag, simple_value } */
static void put_scalar(message *m, const char *tag, double value)
{
    const size_t name = strlen(tag), bytes = 1 + varint_bytes(name) + name + 1 + sizeof(float);
    const float narrow = (float)value;
    put_key(m, 1, 2);
    put_varint(m, bytes);
    put_text(m, 1, tag, name);
    put_key(m, 2, 5);
    put_bytes(m, &narrow, sizeof narrow);
}

/* --- records --- */

/* Castagnoli's, bits reflected. */
static uint32_t crc32c(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint32_t crc = UINT32_MAX;
    while (n--) {
        crc ^= *p++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static uint32_t masked(const void *data, size_t n)
{
    const uint32_t crc = crc32c(data, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void end_log(dlrm_tensorboard *t, const char *why)
{
    dlrm_warn("%s: cannot write (%s); the log for TensorBoard ends here", t->path, why);
    dlrm_tensorboard_close(t);
}

/* As a whole, so that a reader sees no part of it. */
static void put_record(dlrm_tensorboard *t, const message *m)
{
    message record = {.failed = m->failed};
    const uint64_t length = m->n;
    const uint32_t head = masked(&length, sizeof length), tail = masked(m->bytes, m->n);
    put_bytes(&record, &length, sizeof length);
    put_bytes(&record, &head, sizeof head);
    put_bytes(&record, m->bytes, m->n);
    put_bytes(&record, &tail, sizeof tail);
    if (record.failed) end_log(t, strerror(ENOMEM));
    for (size_t n = 0; t->fd >= 0 && n < record.n;) {
        const ssize_t done = write(t->fd, record.bytes + n, record.n - n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) end_log(t, strerror(errno));
        else n += (size_t)done;
    }
    free(record.bytes);
}

/* Event.wall_time */
static void begin(message *m)
{
    const double at = dlrm_now_since_1970();
    put_key(m, 1, 1);
    put_bytes(m, &at, sizeof at);
}

/* --- events --- */

/* Numbers of a map, and of what is in it. A map of a list is called by its table. */
static void put_numbers(message *m, const char *prefix, const json_t *map)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)map, key, value) {
        char tag[MOST_TAG];
        snprintf(tag, sizeof tag, "%s/%s", prefix, key);
        if (json_is_number(value) && strcmp(key, "step") != 0) put_scalar(m, tag, json_number_value(value));
        if (json_is_object(value)) put_numbers(m, tag, value);
        for (size_t i = 0; i < json_array_size(value); i++) {
            const json_t *entry = json_array_get(value, i);
            const char *table = json_string_value(json_object_get(entry, "table"));
            char within[2 * MOST_TAG];
            snprintf(within, sizeof within, "%s/%s", tag, table ? table : "");
            if (table && strlen(within) < MOST_TAG - 50) put_numbers(m, within, entry);
        }
    }
}

void dlrm_tensorboard_write(dlrm_tensorboard *t, const json_t *event)
{
    message values = {0}, m = {0};
    const char *kind = json_string_value(json_object_get(event, "event"));
    if (t->fd < 0 || !kind || (strcmp(kind, "step") != 0 && strcmp(kind, "eval") != 0)) return;
    put_numbers(&values, kind, event);
    begin(&m);
    put_key(&m, 2, 0); /* Event.step */
    put_varint(&m, (uint64_t)json_integer_value(json_object_get(event, "step")));
    put_text(&m, 5, (const char *)values.bytes, values.n); /* Event.summary */
    m.failed |= values.failed;
    put_record(t, &m);
    free(values.bytes);
    free(m.bytes);
}

dlrm_status dlrm_tensorboard_open(const dlrm_config *cfg, dlrm_tensorboard *t)
{
    static const char version[] = "brain.Event:2";
    message m = {0};
    const char *folder = cfg->log.tensorboard;
    char host[65] = "host";
    t->fd = -1;
    if (!folder) return DLRM_OK;
    if (dlrm_folder_make(folder) != DLRM_OK) return dlrm_config_fail(cfg, "log.tensorboard", "%s", dlrm_error_message());
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    snprintf(t->path, sizeof t->path, "%.3900s/events.out.tfevents.%lld.%s.%d", folder, (long long)time(NULL), host, (int)getpid());
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd < 0) return dlrm_config_fail(cfg, "log.tensorboard", "cannot create \"%s\": %s", t->path, strerror(errno));
    begin(&m);
    put_text(&m, 3, version, sizeof version - 1); /* Event.file_version, of the first event */
    put_record(t, &m);
    free(m.bytes);
    return DLRM_OK;
}

void dlrm_tensorboard_close(dlrm_tensorboard *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}
