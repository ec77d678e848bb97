/* Compiled conversion of record batches to Arrow's buffers, and of Arrow's buffers to records.

   `numpy_rows.py` and the sink do the same with numpy. `decode` has no messages for damage: it
   returns None for bytes that it rejects, and the decoder in Python then raises the error or reads
   the bytes. Every read of a byte follows a comparison with the end of its field or record, and
   every write goes into room that was counted before. Code without the GIL touches no object. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Version of arguments and results; rows.py checks it, so each change must raise it. */
#define ROWS_VERSION 2

/* One byte each: attributes, timestamp delta, offset delta, key size, value size, header count. */
#define MIN_BODY_BYTES 6
#define US_PER_MS 1000

/* The columns that a caller wants, as bits. */
enum { KEY = 1, VALUE = 2, TIMESTAMP = 4, TIMESTAMP_TYPE = 8, HEADERS = 16 };

/* -- numbers ----------------------------------------------------------------------------------- */

/* Read a zigzag number of at most `bytes` bytes (5: 32 bits, 10: 64 bits) below `limit`. Returns
   the position after the number; NULL for bytes that are no number. */
static const uint8_t *
long_number(const uint8_t *at, const uint8_t *limit, int bytes, int64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * bytes && at < limit; shift += 7) {
        const uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (bytes == 5 && value > UINT32_MAX) {
                return NULL;
            }
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *
number(const uint8_t *at, const uint8_t *limit, int bytes, int64_t *out)
{
    if (limit - at >= 2) {
        uint32_t value = at[0];
        if (value < 0x80) {
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return at + 1;
        }
        if (at[1] < 0x80) {
            value = (value & 0x7f) | (uint32_t)at[1] << 7;
            *out = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
            return at + 2;
        }
    }
    return long_number(at, limit, bytes, out);
}

static inline uint64_t
zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline int64_t
number_bytes(int64_t value)
{
    uint64_t rest = zigzag(value);
    int64_t bytes = 1;
    while (rest >>= 7) {
        bytes++;
    }
    return bytes;
}

static inline uint8_t *
write_number(uint8_t *at, int64_t value)
{
    uint64_t rest = zigzag(value);
    while (rest >= 0x80) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

/* -- decoding ---------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer view;
    int64_t base_offset, last_offset, base_timestamp, max_timestamp, count;
    int append_time;
} Batch;

/* A column of binary values, with room for the bytes of all batches. */
typedef struct {
    int32_t *offsets;
    uint8_t *validity, *data;
    int64_t bytes, nulls;
} Binary;

typedef struct {
    int wanted;
    /* Rows of `[first, end)` are wanted. */
    int64_t first, end;
    /* The number of rows so far, and the offset of the last row. */
    int64_t rows, previous;
    Binary key, value;
    int64_t *offsets, *timestamps;
    int32_t *types;
    /* Lists of headers; null for a record without headers. */
    int32_t *lists;
    uint8_t *list_validity;
    int64_t list_nulls, headers, header_room;
    Binary header_key, header_value;
    int no_memory;
} Rows;

static inline void
clear_bit(uint8_t *bits, int64_t at)
{
    bits[at >> 3] &= (uint8_t)~(1 << (at & 7));
}

static inline void
add_value(Binary *column, int64_t row, const uint8_t *from, int64_t size)
{
    if (size < 0) {
        clear_bit(column->validity, row);
        column->nulls++;
    }
    else {
        memcpy(column->data + column->bytes, from, (size_t)size);
        column->bytes += size;
    }
    column->offsets[row + 1] = (int32_t)column->bytes;
}

/* Make room for `more` headers, whose keys and values have room already. */
static int
grow_headers(Rows *rows, int64_t more)
{
    int64_t room = rows->header_room;
    if (rows->headers + more <= room) {
        return 1;
    }
    while (room < rows->headers + more) {
        room = room ? 2 * room : 64;
    }
    Binary *columns[] = {&rows->header_key, &rows->header_value};
    for (int i = 0; i < 2; i++) {
        const size_t bytes = sizeof(int32_t) * (size_t)(room + 1);
        int32_t *offsets = realloc(columns[i]->offsets, bytes);
        if (offsets == NULL) {
            return 0;
        }
        columns[i]->offsets = offsets;
        offsets[0] = 0;
    }
    uint8_t *validity = realloc(rows->header_value.validity, (size_t)(room / 8));
    if (validity == NULL) {
        return 0;
    }
    memset(validity + rows->header_room / 8, 0xff, (size_t)((room - rows->header_room) / 8));
    rows->header_value.validity = validity;
    rows->header_room = room;
    return 1;
}

#define READ(out, limit, bytes)                                                                   \
    do {                                                                                          \
        at = number(at, (limit), (bytes), &(out));                                                \
        if (at == NULL) {                                                                         \
            return NULL;                                                                          \
        }                                                                                         \
    } while (0)

/* Read `count` headers, which must end at `end`; keep the headers if `keep` is set. */
static const uint8_t *
read_headers(Rows *rows, const uint8_t *at, const uint8_t *end, int64_t count, int keep)
{
    int64_t key, value;
    if (keep && !grow_headers(rows, count)) {
        rows->no_memory = 1;
        return NULL;
    }
    for (; count > 0; count--) {
        READ(key, end, 5);
        if (key < 0 || key > end - at) {
            return NULL;
        }
        const uint8_t *const key_at = at;
        at += key;
        READ(value, end, 5);
        if (value < -1 || value > end - at) {
            return NULL;
        }
        if (keep) {
            add_value(&rows->header_key, rows->headers, key_at, key);
            add_value(&rows->header_value, rows->headers, at, value);
            rows->headers++;
        }
        at += value > 0 ? value : 0;
    }
    return at == end ? at : NULL;
}

/* Read the record at `at` of a batch that ends at `limit`; NULL for an illegible record. */
static inline const uint8_t *
read_record(Rows *rows, const Batch *batch, const uint8_t *at, const uint8_t *limit)
{
    int64_t size, timestamp, delta, offset, key, value, headers;
    const int wanted = rows->wanted;
    READ(size, limit, 5);
    if (size < MIN_BODY_BYTES || size > limit - at) {
        return NULL;
    }
    const uint8_t *const end = at + size;
    at++; /* the attributes, which readers ignore */
    READ(timestamp, end, 10);
    READ(delta, end, 5);
    if (delta < 0 || __builtin_add_overflow(batch->base_offset, delta, &offset) ||
        offset <= rows->previous || offset > batch->last_offset) {
        return NULL;
    }
    rows->previous = offset;
    READ(key, end, 5);
    if (key < -1 || key > end - at) {
        return NULL;
    }
    const uint8_t *const key_at = at;
    at += key > 0 ? key : 0;
    READ(value, end, 5);
    if (value < -1 || value > end - at) {
        return NULL;
    }
    const uint8_t *const value_at = at;
    at += value > 0 ? value : 0;
    READ(headers, end, 5);
    if (headers < 0 || headers > (end - at) / 2 || (headers == 0 && at != end)) {
        return NULL;
    }
    const int keep = offset >= rows->first && offset < rows->end;
    const int64_t row = rows->rows;
    if (wanted & HEADERS && headers && read_headers(rows, at, end, headers, keep) == NULL) {
        return NULL;
    }
    if (!keep) {
        return end;
    }
    rows->offsets[row] = offset;
    if (wanted & KEY) {
        add_value(&rows->key, row, key_at, key);
    }
    if (wanted & VALUE) {
        add_value(&rows->value, row, value_at, value);
    }
    if (wanted & TIMESTAMP) {
        if (batch->append_time) {
            timestamp = batch->max_timestamp;
        }
        else if (__builtin_add_overflow(batch->base_timestamp, timestamp, &timestamp)) {
            return NULL;
        }
        if (__builtin_mul_overflow(timestamp, (int64_t)US_PER_MS, &rows->timestamps[row])) {
            return NULL;
        }
    }
    if (wanted & TIMESTAMP_TYPE) {
        rows->types[row] = batch->append_time;
    }
    if (wanted & HEADERS) {
        if (headers == 0) {
            clear_bit(rows->list_validity, row);
            rows->list_nulls++;
        }
        rows->lists[row + 1] = (int32_t)rows->headers;
    }
    rows->rows++;
    return end;
}

/* Return whether all records of the batch are legible and fill the batch. */
static int
read_batch(Rows *rows, const Batch *batch)
{
    const uint8_t *at = batch->view.buf;
    const uint8_t *const limit = at + batch->view.len;
    for (int64_t record = 0; record < batch->count; record++) {
        at = read_record(rows, batch, at, limit);
        if (at == NULL) {
            return 0;
        }
    }
    return at == limit;
}

/* Take a batch from `(records, base offset, last offset, base timestamp, max timestamp, count, is
   append time)`. Returns 0 with an exception, or 1 with the batch's buffer held. */
static int
take_batch(PyObject *given, Batch *batch)
{
    PyObject *records;
    long long base, last, base_timestamp, max_timestamp, count;
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a batch is a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "OLLLLLp", &records, &base, &last, &base_timestamp,
                          &max_timestamp, &count, &batch->append_time)) {
        return 0;
    }
    batch->base_offset = base;
    batch->last_offset = last;
    batch->base_timestamp = base_timestamp;
    batch->max_timestamp = max_timestamp;
    batch->count = count;
    return PyObject_GetBuffer(records, &batch->view, PyBUF_SIMPLE) == 0;
}

/* Put an uninitialised bytearray of this size into `objects`; return its bytes. */
static void *
new_bytes(PyObject **object, int64_t bytes)
{
    *object = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    return *object == NULL ? NULL : PyByteArray_AsString(*object);
}

/* The objects that hold a column's buffers while it is filled. */
typedef struct {
    PyObject *offsets, *validity, *data;
} Held;

static int
make_binary(Binary *column, Held *held, int64_t rows, int64_t bytes)
{
    column->offsets = new_bytes(&held->offsets, (int64_t)sizeof(int32_t) * (rows + 1));
    column->validity = new_bytes(&held->validity, (rows + 7) / 8);
    column->data = new_bytes(&held->data, bytes);
    if (column->offsets == NULL || column->validity == NULL || column->data == NULL) {
        return 0;
    }
    column->offsets[0] = 0;
    memset(column->validity, 0xff, (size_t)(rows + 7) / 8);
    return 1;
}

/* Return `(offsets, data, bytes of data, validity or None, nulls)`, None if not wanted. */
static PyObject *
binary_of(const Binary *column, const Held *held)
{
    if (held->offsets == NULL) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(OOLOL)", held->offsets, held->data, (long long)column->bytes,
                         column->nulls ? held->validity : Py_None, (long long)column->nulls);
}

/* Return `(lists, list validity or None, nulls, headers, keys, values)`, None if not wanted. */
static PyObject *
headers_of(const Rows *rows, PyObject *lists, PyObject *validity, Held *keys, Held *values)
{
    static const int32_t none = 0;
    if (lists == NULL) {
        Py_RETURN_NONE;
    }
    const Py_ssize_t size = (Py_ssize_t)sizeof(int32_t) * (rows->headers + 1);
    const void *key_offsets = rows->header_room ? rows->header_key.offsets : &none;
    const void *value_offsets = rows->header_room ? rows->header_value.offsets : &none;
    keys->offsets = PyByteArray_FromStringAndSize(key_offsets, size);
    values->offsets = PyByteArray_FromStringAndSize(value_offsets, size);
    values->validity = PyByteArray_FromStringAndSize((const char *)rows->header_value.validity,
                                                     (Py_ssize_t)rows->header_room / 8);
    if (keys->offsets == NULL || values->offsets == NULL || values->validity == NULL) {
        return NULL;
    }
    return Py_BuildValue("(OOLLNN)", lists, rows->list_nulls ? validity : Py_None,
                         (long long)rows->list_nulls, (long long)rows->headers,
                         binary_of(&rows->header_key, keys),
                         binary_of(&rows->header_value, values));
}

static void
release(Held *held)
{
    Py_CLEAR(held->offsets);
    Py_CLEAR(held->validity);
    Py_CLEAR(held->data);
}

/* Decode batches whose buffers are held; return the columns, None for illegible bytes. */
static PyObject *
decode_batches(Rows *rows, const Batch *batches, Py_ssize_t count, int64_t most, int64_t bytes)
{
    Held key = {0}, value = {0}, header_key = {0}, header_value = {0};
    PyObject *offsets = NULL, *timestamps = NULL, *types = NULL, *lists = NULL, *validity = NULL;
    PyObject *answer = NULL;
    const int wanted = rows->wanted;
    int legible = 1;
    if ((rows->offsets = new_bytes(&offsets, (int64_t)sizeof(int64_t) * most)) == NULL ||
        (wanted & KEY && !make_binary(&rows->key, &key, most, bytes)) ||
        (wanted & VALUE && !make_binary(&rows->value, &value, most, bytes)) ||
        (wanted & TIMESTAMP &&
         !(rows->timestamps = new_bytes(&timestamps, (int64_t)sizeof(int64_t) * most))) ||
        (wanted & TIMESTAMP_TYPE &&
         !(rows->types = new_bytes(&types, (int64_t)sizeof(int32_t) * most)))) {
        goto done;
    }
    if (wanted & HEADERS) {
        if (!(rows->lists = new_bytes(&lists, (int64_t)sizeof(int32_t) * (most + 1))) ||
            !(rows->list_validity = new_bytes(&validity, (most + 7) / 8)) ||
            !(rows->header_key.data = new_bytes(&header_key.data, bytes)) ||
            !(rows->header_value.data = new_bytes(&header_value.data, bytes))) {
            goto done;
        }
        rows->lists[0] = 0;
        memset(rows->list_validity, 0xff, (size_t)(most + 7) / 8);
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; legible && i < count; i++) {
        legible = read_batch(rows, &batches[i]);
    }
    Py_END_ALLOW_THREADS
    if (rows->no_memory) {
        PyErr_NoMemory();
    }
    else if (!legible) {
        answer = Py_NewRef(Py_None);
    }
    else {
        answer = Py_BuildValue("(LNNOOON)", (long long)rows->rows, binary_of(&rows->key, &key),
                               binary_of(&rows->value, &value), offsets,
                               timestamps ? timestamps : Py_None, types ? types : Py_None,
                               headers_of(rows, lists, validity, &header_key, &header_value));
    }
done:
    release(&key);
    release(&value);
    release(&header_key);
    release(&header_value);
    Py_XDECREF(offsets);
    Py_XDECREF(timestamps);
    Py_XDECREF(types);
    Py_XDECREF(lists);
    Py_XDECREF(validity);
    free(rows->header_key.offsets);
    free(rows->header_value.offsets);
    free(rows->header_value.validity);
    return answer;
}

static PyObject *
decode(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *given, *answer = NULL;
    long long first, end;
    Rows rows = {0};
    int64_t most = 0, bytes = 0;
    Py_ssize_t held = 0;
    int legible = 1;
    if (!PyArg_ParseTuple(args, "O!LLi", &PyList_Type, &given, &first, &end, &rows.wanted)) {
        return NULL;
    }
    rows.first = first;
    rows.end = end;
    rows.previous = INT64_MIN;
    const Py_ssize_t count = PyList_Size(given);
    Batch *batches = PyMem_Calloc((size_t)count + 1, sizeof(Batch));
    if (batches == NULL) {
        return PyErr_NoMemory();
    }
    for (; held < count; held++) {
        /* The size is read in each round, as code of a buffer's owner may change the list. */
        PyObject *each = held < PyList_Size(given) ? PyList_GetItem(given, held) : Py_None;
        Py_INCREF(each);
        const int taken = take_batch(each, &batches[held]);
        Py_DECREF(each);
        if (!taken) {
            goto done;
        }
        const Batch *const batch = &batches[held];
        /* A record has at least one byte, so a false count does not reserve memory. */
        legible = legible && batch->count >= 0 &&
                  batch->count <= batch->view.len / (MIN_BODY_BYTES + 1);
        most += legible ? batch->count : 0;
        bytes += batch->view.len;
    }
    if (bytes > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more bytes than the offsets of a column can tell");
    }
    else if (!legible) {
        answer = Py_NewRef(Py_None);
    }
    else {
        answer = decode_batches(&rows, batches, count, most, bytes);
    }
done:
    while (held > 0) {
        PyBuffer_Release(&batches[--held].view);
    }
    PyMem_Free(batches);
    return answer;
}

/* -- encoding ---------------------------------------------------------------------------------- */

/* An Arrow column of binary values; a column without offsets has only nulls. */
typedef struct {
    Py_buffer validity, offsets, data;
    int64_t shift;
} Column;

typedef struct {
    /* `tails` are the encoded headers of each record, with their number. */
    Column keys, values, tails;
    Py_buffer timestamps, picks;
    /* The timestamp of all rows if there is no column of timestamps. */
    int64_t now;
    int64_t rows, start, end;
    /* The result of the encoding. */
    int64_t bytes, base_timestamp, max_timestamp;
    const char *fault;
} Encoding;

static inline int32_t
int32_at(const Py_buffer *buffer, int64_t place)
{
    int32_t value;
    memcpy(&value, (const uint8_t *)buffer->buf + place * (int64_t)sizeof value, sizeof value);
    return value;
}

static inline int64_t
int64_at(const Py_buffer *buffer, int64_t place)
{
    int64_t value;
    memcpy(&value, (const uint8_t *)buffer->buf + place * (int64_t)sizeof value, sizeof value);
    return value;
}

/* Find the value of a row. Returns its size, -1 for null, -2 for a row outside the column. */
static inline int64_t
value_at(const Column *column, int64_t row, const uint8_t **from)
{
    *from = NULL;
    if (column->offsets.obj == NULL) {
        return -1;
    }
    const int64_t place = column->shift + row;
    if (column->validity.obj != NULL &&
        !(((const uint8_t *)column->validity.buf)[place >> 3] >> (place & 7) & 1)) {
        return -1;
    }
    const int64_t start = int32_at(&column->offsets, place);
    const int64_t end = int32_at(&column->offsets, place + 1);
    if (start < 0 || end < start || end > column->data.len) {
        return -2;
    }
    *from = (const uint8_t *)column->data.buf + start;
    return end - start;
}

static inline int64_t
value_bytes(int64_t size)
{
    return number_bytes(size) + (size > 0 ? size : 0);
}

static inline uint8_t *
write_value(uint8_t *at, const uint8_t *from, int64_t size)
{
    at = write_number(at, size);
    if (size > 0) {
        memcpy(at, from, (size_t)size);
        at += size;
    }
    return at;
}

/* One row: positions and sizes of its fields, and the size of its record's body. */
typedef struct {
    const uint8_t *key_at, *value_at, *tail_at;
    int64_t key, value, tail, timestamp, delta, body;
} Row;

#define FAULT(words)                                                                              \
    do {                                                                                          \
        encoding->fault = (words);                                                                \
        return 0;                                                                                 \
    } while (0)

static inline int
measure(Encoding *encoding, int64_t place, Row *row)
{
    static const uint8_t no_headers = 0;
    const int64_t at = encoding->picks.obj ? int64_at(&encoding->picks, place) : place;
    if (at < 0 || at >= encoding->rows) {
        FAULT("a row outside of its column");
    }
    row->timestamp = encoding->timestamps.obj ? int64_at(&encoding->timestamps, at) : encoding->now;
    if (place == encoding->start) {
        encoding->base_timestamp = row->timestamp;
    }
    if (__builtin_sub_overflow(row->timestamp, encoding->base_timestamp, &row->delta)) {
        FAULT("two timestamps of a batch are further apart than 64 bits can tell");
    }
    row->key = value_at(&encoding->keys, at, &row->key_at);
    row->value = value_at(&encoding->values, at, &row->value_at);
    row->tail = value_at(&encoding->tails, at, &row->tail_at);
    if (row->key < -1 || row->value < -1 || row->tail < -1) {
        FAULT("a value outside of its column");
    }
    if (row->tail < 0) {
        row->tail = 1;
        row->tail_at = &no_headers;
    }
    row->body = 1 + number_bytes(row->delta) + number_bytes(place - encoding->start) +
                value_bytes(row->key) + value_bytes(row->value) + row->tail;
    if (row->body > INT32_MAX) {
        FAULT("a record of more than 2 GiB");
    }
    return 1;
}

static int
measure_all(Encoding *encoding)
{
    int64_t bytes = 0, largest = INT64_MIN;
    Row row;
    for (int64_t place = encoding->start; place < encoding->end; place++) {
        if (!measure(encoding, place, &row)) {
            return 0;
        }
        bytes += number_bytes(row.body) + row.body;
        largest = row.timestamp > largest ? row.timestamp : largest;
    }
    if (bytes > INT32_MAX) {
        FAULT("a batch of more than 2 GiB");
    }
    encoding->bytes = bytes;
    encoding->max_timestamp = largest;
    return 1;
}

static int
write_all(Encoding *encoding, uint8_t *at)
{
    const uint8_t *const limit = at + encoding->bytes;
    Row row;
    for (int64_t place = encoding->start; place < encoding->end; place++) {
        if (!measure(encoding, place, &row)) {
            return 0;
        }
        if (number_bytes(row.body) + row.body > limit - at) {
            FAULT("a column changed while it was encoded");
        }
        at = write_number(at, row.body);
        *at++ = 0; /* the attributes */
        at = write_number(at, row.delta);
        at = write_number(at, place - encoding->start);
        at = write_value(at, row.key_at, row.key);
        at = write_value(at, row.value_at, row.value);
        memcpy(at, row.tail_at, (size_t)row.tail);
        at += row.tail;
    }
    if (at != limit) {
        FAULT("a column changed while it was encoded");
    }
    return 1;
}

/* Take a buffer of at least `least` bytes; None gives no buffer. */
static int
take_buffer(PyObject *given, Py_buffer *buffer, int64_t least)
{
    if (given == Py_None) {
        return 1;
    }
    if (PyObject_GetBuffer(given, buffer, PyBUF_SIMPLE) < 0) {
        return 0;
    }
    if (buffer->len < least) {
        PyErr_SetString(PyExc_ValueError, "a buffer is shorter than its column");
        return 0;
    }
    return 1;
}

/* Take a column `(validity or None, offsets, data or None, shift)`; None has only nulls. */
static int
take_column(PyObject *given, Column *column, int64_t rows)
{
    PyObject *validity, *offsets, *data;
    long long shift;
    if (given == Py_None) {
        return 1;
    }
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a column is a tuple or None");
        return 0;
    }
    if (!PyArg_ParseTuple(given, "OOOL", &validity, &offsets, &data, &shift)) {
        return 0;
    }
    if (shift < 0 || shift > INT32_MAX || offsets == Py_None) {
        PyErr_SetString(PyExc_ValueError, "a column without offsets, or its shift is out of range");
        return 0;
    }
    column->shift = shift;
    return take_buffer(validity, &column->validity, (shift + rows + 7) / 8) &&
           take_buffer(offsets, &column->offsets, (int64_t)sizeof(int32_t) * (shift + rows + 1)) &&
           take_buffer(data, &column->data, 0);
}

static void
release_column(Column *column)
{
    PyBuffer_Release(&column->validity);
    PyBuffer_Release(&column->offsets);
    PyBuffer_Release(&column->data);
}

static PyObject *
encode_rows(Encoding *encoding)
{
    int done;
    PyObject *payload = NULL;
    Py_BEGIN_ALLOW_THREADS
    done = measure_all(encoding);
    Py_END_ALLOW_THREADS
    if (done) {
        uint8_t *const at = new_bytes(&payload, encoding->bytes);
        if (at == NULL) {
            return NULL;
        }
        Py_BEGIN_ALLOW_THREADS
        done = write_all(encoding, at);
        Py_END_ALLOW_THREADS
    }
    if (!done) {
        Py_XDECREF(payload);
        PyErr_SetString(PyExc_ValueError, encoding->fault);
        return NULL;
    }
    return Py_BuildValue("(NLL)", payload, (long long)encoding->base_timestamp,
                         (long long)encoding->max_timestamp);
}

static PyObject *
encode(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *values, *tails, *timestamps, *picks, *answer = NULL;
    long long now, rows, start, end;
    Encoding encoding = {0};
    if (!PyArg_ParseTuple(args, "OOOOLOLLL", &keys, &values, &tails, &timestamps, &now, &picks,
                          &rows, &start, &end)) {
        return NULL;
    }
    if (rows < 0 || rows > INT32_MAX || start < 0 || end <= start || end > INT32_MAX ||
        (picks == Py_None && end > rows)) {
        PyErr_SetString(PyExc_ValueError, "rows, start or end out of range");
        return NULL;
    }
    encoding.now = now;
    encoding.rows = rows;
    encoding.start = start;
    encoding.end = end;
    if (take_column(keys, &encoding.keys, rows) && take_column(values, &encoding.values, rows) &&
        take_column(tails, &encoding.tails, rows) &&
        take_buffer(timestamps, &encoding.timestamps, (int64_t)sizeof(int64_t) * rows) &&
        take_buffer(picks, &encoding.picks, (int64_t)sizeof(int64_t) * end)) {
        answer = encode_rows(&encoding);
    }
    release_column(&encoding.keys);
    release_column(&encoding.values);
    release_column(&encoding.tails);
    PyBuffer_Release(&encoding.timestamps);
    PyBuffer_Release(&encoding.picks);
    return answer;
}

/* -- partitions of keys ------------------------------------------------------------------------ */

/* MurmurHash2 of 32 bits with the seed of Kafka's producers (Utils.murmur2). */
static uint32_t
murmur2(const uint8_t *at, int64_t size)
{
    const uint32_t m = 0x5bd1e995;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t word =
            at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= m;
        word ^= word >> 24;
        hash = (hash * m) ^ (word * m);
    }
    if (size > 0) {
        for (int64_t i = 0; i < size; i++) {
            hash ^= (uint32_t)at[i] << (8 * i);
        }
        hash *= m;
    }
    hash = (hash ^ hash >> 13) * m;
    return hash ^ hash >> 15;
}

static PyObject *
partitions(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys, *answer = NULL;
    long long rows, count;
    Column column = {0};
    if (!PyArg_ParseTuple(args, "OLL", &keys, &rows, &count)) {
        return NULL;
    }
    if (rows < 0 || rows > INT32_MAX || count < 1 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows or count out of range");
        return NULL;
    }
    if (take_column(keys, &column, rows)) {
        int32_t *numbers = new_bytes(&answer, (int64_t)sizeof(int32_t) * rows);
        int64_t bad = 0;
        if (numbers != NULL) {
            Py_BEGIN_ALLOW_THREADS
            for (int64_t row = 0; row < rows; row++) {
                const uint8_t *from;
                const int64_t size = value_at(&column, row, &from);
                bad += size < -1;
                numbers[row] =
                    size < 0 ? -1 : (int32_t)((murmur2(from, size) & 0x7fffffff) % (uint32_t)count);
            }
            Py_END_ALLOW_THREADS
        }
        if (bad) {
            Py_CLEAR(answer);
            PyErr_SetString(PyExc_ValueError, "a value outside of its column");
        }
    }
    release_column(&column);
    return answer;
}

/* -- the module -------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"decode", decode, METH_VARARGS, "Decode record batches; see tidelog.spark.rows."},
    {"encode", encode, METH_VARARGS, "Encode rows; see tidelog.spark.record_encoding."},
    {"partitions", partitions, METH_VARARGS, "Partitions of keys, -1 for null; see there."},
    {NULL, NULL, 0, NULL},
};

static int
fill(PyObject *module)
{
    return PyModule_AddIntConstant(module, "VERSION", ROWS_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_rows", "Rows of record batches, compiled.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__rows(void)
{
    return PyModuleDef_Init(&definition);
}
