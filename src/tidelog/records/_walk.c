/* The compiled walk over the records of a batch; `records/walk.py` has the same walk in Python.

   Every read of a byte follows a comparison with the end of its field or record. A 32-bit number
   has at most five bytes and a 64-bit number at most ten, as Kafka's readers require. The verdict,
   the record and the value of a fault are those of the Python walk: tests compare both walks. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Version of the arguments and the result; walk.py checks it, so each change must raise it. */
#define WALK_VERSION 1

/* A walk over more bytes than this releases the GIL. */
#define GIL_KEPT_BYTES (1 << 20)
#define MAX_BAD 10000
#define MIN_BODY_BYTES 6

enum {
    OK = 0,
    TOO_EARLY = 1,
    LONG_NUMBER = 2,
    SIZE = 3,
    PAST_END = 4,
    OFFSET_DELTA = 5,
    TIMESTAMP = 6,
    KEY = 7,
    VALUE = 8,
    HEADER_COUNT = 9,
    HEADER_KEY = 10,
    HEADER_VALUE = 11,
    SIZE_OFF = 12,
    LEFT_OVER = 13
};

typedef struct {
    int64_t record;
    int64_t timestamp;
    int keyless;
} Bad;

typedef struct {
    const uint8_t *start, *end;
    int64_t count, base, earliest, latest;
    int keys_required;
    /* the result of the walk */
    int fault;
    int64_t record, value, largest;
    Bad *bad;
    int64_t bad_room, bad_kept, bad_seen;
    int no_memory;
} Walk;

/* Read a zigzag number of at most `bytes` bytes (5 or 10) below `limit`. Returns the position
   after the number, or NULL with `*fault` set to `early` or LONG_NUMBER. */
static const uint8_t *
number_slow(const uint8_t *at, const uint8_t *limit, int bytes, int early, int64_t *out, int *fault)
{
    uint64_t value = 0;
    int shift = 0;
    for (int read = 0; read < bytes; read++) {
        if (at >= limit) {
            *fault = early;
            return NULL;
        }
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (bytes == 5 && value > UINT32_MAX) {
                break;
            }
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return at;
        }
        shift += 7;
    }
    *fault = LONG_NUMBER;
    return NULL;
}

static inline const uint8_t *
number(const uint8_t *at, const uint8_t *limit, int bytes, int early, int64_t *out, int *fault)
{
    if (limit - at >= 2) {
        uint32_t byte = at[0];
        if (byte < 0x80) {
            *out = (int64_t)(byte >> 1) ^ -(int64_t)(byte & 1);
            return at + 1;
        }
        uint32_t second = at[1];
        if (second < 0x80) {
            uint32_t value = (byte & 0x7f) | second << 7;
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return at + 2;
        }
    }
    return number_slow(at, limit, bytes, early, out, fault);
}

#define READ(out, limit, bytes, early)                                                            \
    do {                                                                                          \
        at = number(at, (limit), (bytes), (early), &(out), &fault);                               \
        if (at == NULL) {                                                                         \
            FAIL(fault, 0);                                                                       \
        }                                                                                         \
    } while (0)

#define FAIL(what, with)                                                                          \
    do {                                                                                          \
        walk->fault = (what);                                                                     \
        walk->record = record;                                                                    \
        walk->value = (with);                                                                     \
        return;                                                                                   \
    } while (0)

static void
note_bad(Walk *walk, int64_t record, int64_t timestamp, int keyless)
{
    walk->bad_seen++;
    if (walk->bad_kept >= walk->bad_room) {
        return;
    }
    if (walk->bad == NULL) {
        walk->bad = malloc(sizeof(Bad) * (size_t)walk->bad_room);
        if (walk->bad == NULL) {
            walk->no_memory = 1;
            walk->bad_room = 0;
            return;
        }
    }
    walk->bad[walk->bad_kept++] = (Bad){record, timestamp, keyless};
}

/* The shape of a record is the number of bytes of each of its numbers. Consecutive records mostly
   have the same shape, which one comparison checks for all numbers of a record. So the walk needs
   no branch for each byte, which would be half of its time.

   Only usual records have a shape: the fields up to the key's size fit into the eight bytes of one
   load, the key's size has one byte, the value is not null, and the record has no headers. */
typedef struct {
    /* The top bits of the numbers' bytes, and the set top bits, after which more bytes follow. */
    uint64_t tops, set;
    /* Masks of the second byte of the size and of the timestamp delta, after a shift by one. */
    uint64_t size_second, timestamp_second;
    /* The seven low bits of each byte of the offset delta, which is below `records`. */
    uint64_t offset_bits;
    int64_t records;
    /* All bits up to the key's size, without the bits of the two deltas. */
    uint64_t fixed;
    int size_bytes, timestamp_at, offset_at, key_at, bytes;
} Shape;

/* Return the number of bytes, at most `most`, of the number at bit `at` of `word`. Returns 0 for a
   longer number, or one that leaves the eight bytes. Adds the number's top bits to the shape. */
static inline int
length_in(uint64_t word, int at, int most, Shape *shape)
{
    for (int bytes = 1; bytes <= most && at < 64; bytes++, at += 8) {
        shape->tops |= (uint64_t)0x80 << at;
        if (!(word >> at & 0x80)) {
            return bytes;
        }
        shape->set |= (uint64_t)0x80 << at;
    }
    return 0;
}

/* Find the shape of the record that begins with the bytes of `word`; return 0 without a shape. */
static int
shape_of(uint64_t word, Shape *shape)
{
    int bytes;
    shape->tops = shape->set = 0;
    if (!(bytes = length_in(word, 0, 2, shape))) {
        return 0;
    }
    shape->size_bytes = bytes;
    shape->size_second = bytes == 2 ? 0x3f80 : 0;
    shape->timestamp_at = 8 * (bytes + 1);
    if (!(bytes = length_in(word, shape->timestamp_at, 2, shape))) {
        return 0;
    }
    shape->timestamp_second = bytes == 2 ? 0x3f80 : 0;
    shape->offset_at = shape->timestamp_at + 8 * bytes;
    if (!(bytes = length_in(word, shape->offset_at, 3, shape))) {
        return 0;
    }
    shape->offset_bits = 0x7f7f7f & (((uint64_t)1 << 8 * bytes) - 1);
    shape->records = (int64_t)1 << (7 * bytes - 1);
    shape->key_at = shape->offset_at + 8 * bytes;
    shape->bytes = shape->key_at / 8 + 1;
    shape->fixed = ~(shape->offset_bits << shape->offset_at) &
                   ~((0x7f | (shape->timestamp_second << 1)) << shape->timestamp_at);
    if (shape->bytes < (int)sizeof word) {
        shape->fixed &= ((uint64_t)1 << 8 * shape->bytes) - 1;
    }
    return length_in(word, shape->key_at, 1, shape);
}

/* Return the offset delta `number` as a record encodes it, without the top bits. */
static inline uint64_t
offset_in_place(int64_t number)
{
    const uint64_t twice = (uint64_t)number << 1;
    return (twice & 0x7f) | (twice << 1 & 0x7f00) | (twice << 2 & 0x7f0000);
}

/* Read the timestamp of a record of this shape; return whether it is within the bounds. */
static inline int
timestamp_in(const Walk *walk, const Shape *shape, uint64_t word, int64_t *timestamp)
{
    uint64_t delta = word >> shape->timestamp_at;
    delta = (delta & 0x7f) | (delta >> 1 & shape->timestamp_second);
    return !__builtin_add_overflow(walk->base, (int64_t)(delta >> 1) ^ -(int64_t)(delta & 1),
                                   timestamp) &&
           *timestamp >= walk->earliest && *timestamp <= walk->latest;
}

/* Continue over records with the length, the key's size and the value's size of the record at
   `like`, which was walked: the same bounds hold, so they need no checks. The position of the next
   record does not depend on a read either, so the processor starts it before this record is done.
   Returns the position of the first record that differs. */
static const uint8_t *
run_equal(const Walk *walk, const Shape *shape, const uint8_t *like, const uint8_t *at,
          int64_t value_at, int value_size_bytes, int64_t count, int64_t *record, int64_t *largest)
{
    const int64_t stride = at - like;
    const uint16_t kept = value_size_bytes == 2 ? 0xffff : 0x00ff;
    uint64_t word;
    uint16_t value, like_value;
    int64_t number = *record, last = *largest, timestamp;
    if (stride < (int64_t)sizeof word) {
        return at;
    }
    memcpy(&word, like, sizeof word);
    memcpy(&like_value, like + value_at, sizeof value);
    const uint64_t fixed = shape->fixed | shape->offset_bits << shape->offset_at;
    const uint64_t whole =
        fixed | (0x7f | shape->timestamp_second << 1) << shape->timestamp_at;
    /* The bits of the previous record without its offset delta, and the next record's delta. */
    uint64_t same = word & whole & ~(shape->offset_bits << shape->offset_at);
    uint64_t offset = offset_in_place(number);
    const uint8_t *const last_at = walk->end - stride;
    while (number < count && at <= last_at) {
        const uint64_t expected = same | offset << shape->offset_at;
        memcpy(&word, at, sizeof word);
        memcpy(&value, at + value_at, sizeof value);
        if ((word & whole) != expected) {
            /* Only the timestamp may differ; it is read when it does, once a millisecond. */
            if ((word & fixed) != (expected & fixed) ||
                !timestamp_in(walk, shape, word, &timestamp)) {
                break;
            }
            same = word & whole & ~(shape->offset_bits << shape->offset_at);
        }
        else {
            timestamp = last;
        }
        if (((value ^ like_value) & kept) || at[stride - 1]) {
            break;
        }
        last = timestamp > last ? timestamp : last;
        at += stride;
        number++;
        offset += 2; /* the zigzag delta grows by one */
        offset += offset & 0x80;
        offset += offset & 0x8000;
    }
    *record = number;
    *largest = last;
    return at;
}

/* Walk records of one shape from `at` until a record is irregular or wrong. Returns the position
   of that record, which `run` reads byte by byte, and counts the walked records. */
static const uint8_t *
run_shaped(const Walk *walk, const uint8_t *at, int64_t *record, int64_t *largest)
{
    const uint8_t *const total = walk->end;
    int64_t number = *record, last = *largest;
    uint64_t word, size_before = 1; /* the value of no record, because sizes are even here */
    Shape shape;
    if (total - at < (int64_t)sizeof word) {
        return at;
    }
    memcpy(&word, at, sizeof word);
    if (!shape_of(word, &shape)) {
        return at;
    }
    const int64_t count = walk->count < shape.records ? walk->count : shape.records;
    while (number < count) {
        const uint64_t size = (word & 0x7f) | (word >> 1 & shape.size_second);
        uint64_t key = word >> shape.key_at & 0x7f;
        int64_t timestamp;
        if ((word & shape.tops) != shape.set || size & 1 ||
            (word >> shape.offset_at & shape.offset_bits) != offset_in_place(number) ||
            (int64_t)(size >> 1) > total - at - shape.size_bytes ||
            !timestamp_in(walk, &shape, word, &timestamp)) {
            break;
        }
        if (key & 1) {
            if (key != 1 || walk->keys_required) {
                break;
            }
            key = 0;
        }
        const uint8_t *const end = at + shape.size_bytes + (size >> 1);
        const uint8_t *const behind_key = at + shape.bytes + (key >> 1);
        /* The value's size and the number of headers must still follow; otherwise a field passes
           the end. The check precedes every read beyond the key. */
        if (end - behind_key < 2) {
            break;
        }
        uint64_t value = behind_key[0];
        int64_t bytes = 1;
        if (value & 0x80) {
            if (behind_key[1] & 0x80) {
                break;
            }
            value = (value & 0x7f) | (uint64_t)behind_key[1] << 7;
            bytes = 2;
        }
        if (value & 1 || end - behind_key != bytes + (int64_t)(value >> 1) + 1 || end[-1]) {
            break;
        }
        last = timestamp > last ? timestamp : last;
        const uint8_t *const before = at;
        at = end;
        number++;
        if (size == size_before) {
            at = run_equal(walk, &shape, before, at, behind_key - before, (int)bytes, count,
                           &number, &last);
        }
        size_before = size;
        if (total - at < (int64_t)sizeof word) {
            break;
        }
        memcpy(&word, at, sizeof word);
    }
    *record = number;
    *largest = last;
    return at;
}

static void
run(Walk *walk)
{
    const uint8_t *at = walk->start, *const total = walk->end;
    const int64_t count = walk->count, base = walk->base;
    const int64_t earliest = walk->earliest, latest = walk->latest;
    int64_t largest = INT64_MIN, size, delta, timestamp, length, headers, record;
    int fault = OK;
    for (record = 0; record < count; record++) {
        const int64_t before = record;
        at = run_shaped(walk, at, &record, &largest);
        if (record > before) {
            record--; /* the loop counts the last record */
            continue;
        }
        READ(size, total, 5, TOO_EARLY);
        if (size < MIN_BODY_BYTES || size > total - at) {
            FAIL(SIZE, size);
        }
        const uint8_t *const end = at + size;
        at++; /* the attributes, which readers ignore */
        READ(delta, end, 10, PAST_END);
        if (__builtin_add_overflow(base, delta, &timestamp)) {
            FAIL(TIMESTAMP, delta);
        }
        if (timestamp > largest) {
            largest = timestamp;
        }
        READ(delta, end, 5, PAST_END);
        if (delta != record) {
            FAIL(OFFSET_DELTA, delta);
        }
        READ(length, end, 5, PAST_END);
        if (length < -1 || length > end - at) {
            FAIL(KEY, length);
        }
        if (length < 0) {
            if (walk->keys_required) {
                note_bad(walk, record, timestamp, 1);
            }
            else if ((timestamp < earliest || timestamp > latest) && timestamp != -1) {
                note_bad(walk, record, timestamp, 0);
            }
        }
        else {
            at += length;
            if ((timestamp < earliest || timestamp > latest) && timestamp != -1) {
                note_bad(walk, record, timestamp, 0);
            }
        }
        READ(length, end, 5, PAST_END);
        if (length < -1 || length > end - at) {
            FAIL(VALUE, length);
        }
        if (length > 0) {
            at += length;
        }
        READ(headers, end, 5, PAST_END);
        if (headers) {
            if (headers < 0 || headers > (end - at) / 2) {
                FAIL(HEADER_COUNT, headers);
            }
            for (; headers > 0; headers--) {
                READ(length, end, 5, PAST_END);
                if (length < 0 || length > end - at) {
                    FAIL(HEADER_KEY, length);
                }
                at += length;
                READ(length, end, 5, PAST_END);
                if (length < -1 || length > end - at) {
                    FAIL(HEADER_VALUE, length);
                }
                if (length > 0) {
                    at += length;
                }
            }
        }
        if (at != end) {
            FAIL(SIZE_OFF, end - at);
        }
        /* `end` equals `at` but is known earlier, so the next record need not wait for fields. */
        at = end;
        __asm__("" : "+r"(at));
    }
    if (at != total) {
        FAIL(LEFT_OVER, total - at);
    }
    walk->largest = largest;
}

static PyObject *
verdict(Walk *walk)
{
    if (walk->no_memory) {
        return PyErr_NoMemory();
    }
    if (walk->fault == OK && walk->bad_seen == 0) {
        return PyLong_FromLongLong(walk->largest);
    }
    Py_ssize_t kept = walk->fault == OK ? (Py_ssize_t)walk->bad_kept : 0;
    PyObject *bad = PyList_New(kept);
    if (bad == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < kept; i++) {
        Bad *each = &walk->bad[i];
        PyObject *pair = Py_BuildValue("(LLO)", (long long)each->record, (long long)each->timestamp,
                                       each->keyless ? Py_True : Py_False);
        if (pair == NULL || PyList_SetItem(bad, i, pair) < 0) {
            Py_DECREF(bad);
            return NULL;
        }
    }
    return Py_BuildValue("(iLLNL)", walk->fault, (long long)walk->record, (long long)walk->value,
                         bad, (long long)(walk->fault == OK ? walk->bad_seen : 0));
}

static int
integer(PyObject *object, int64_t *out)
{
    *out = PyLong_AsLongLong(object);
    return !(*out == -1 && PyErr_Occurred());
}

static PyObject *
walk(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    Walk walk = {0};
    Py_buffer view;
    int64_t start, end, room;
    if (given != 9) {
        PyErr_SetString(PyExc_TypeError, "walk takes nine arguments");
        return NULL;
    }
    if (!integer(args[1], &start) || !integer(args[2], &end) || !integer(args[3], &walk.count) ||
        !integer(args[4], &walk.base) || !integer(args[5], &walk.earliest) ||
        !integer(args[6], &walk.latest) || !integer(args[8], &room)) {
        return NULL;
    }
    walk.keys_required = PyObject_IsTrue(args[7]);
    if (walk.keys_required < 0 || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *answer = NULL;
    if (start < 0 || end < start || end > view.len || room < 0 || room > MAX_BAD) {
        PyErr_SetString(PyExc_ValueError, "start, end or room out of range");
    }
    else {
        walk.start = (const uint8_t *)view.buf + start;
        walk.end = (const uint8_t *)view.buf + end;
        walk.bad_room = room;
        if (end - start > GIL_KEPT_BYTES) {
            Py_BEGIN_ALLOW_THREADS
            run(&walk);
            Py_END_ALLOW_THREADS
        }
        else {
            run(&walk);
        }
        answer = verdict(&walk);
    }
    free(walk.bad);
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *
room(PyObject *Py_UNUSED(module), PyObject *size)
{
    Py_ssize_t bytes = PyLong_AsSsize_t(size);
    if (bytes == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "a size below 0");
        return NULL;
    }
    /* The decompressor is the first to touch the new pages, without the GIL. Zeroing 95 MB here
       would hold the GIL for 50 ms. */
    return PyByteArray_FromStringAndSize(NULL, bytes);
}

static PyMethodDef methods[] = {
    {"walk", (PyCFunction)(void (*)(void))walk, METH_FASTCALL,
     "Walk the records of one batch; see tidelog.records.walk."},
    {"room", room, METH_O, "A bytearray of so many bytes whose content is not initialised."},
    {NULL, NULL, 0, NULL},
};

static int
fill(PyObject *module)
{
    return PyModule_AddIntConstant(module, "VERSION", WALK_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_walk", "The compiled walk over records.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__walk(void)
{
    return PyModuleDef_Init(&definition);
}
