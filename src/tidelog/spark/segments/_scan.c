/* The compiled scan over the batch headers of a log file; `batch_scan.py` has the same scan in
   Python.

   Every read of a byte follows a comparison with the end of the buffer. A row has the columns of
   `batch_scan.COLUMNS`, each an int64. Tests compare the rows of both scans. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* Version of arguments and result; batch_scan.py checks it, so each change must raise it. */
#define SCAN_VERSION 1

#define HEADER_BYTES 61
#define OVERHEAD_BYTES 12
#define MIN_LENGTH (HEADER_BYTES - OVERHEAD_BYTES)
#define CRC_FROM 21
#define COLUMNS 13
#define MAGIC 2

enum { FULL = 0, SHORT = 1, BAD_LENGTH = 2, BAD_MAGIC = 3 };

static uint32_t table[8][256];

static void
fill_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
        }
        table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++) {
        for (int slice = 1; slice < 8; slice++) {
            table[slice][n] = table[0][table[slice - 1][n] & 0xff] ^ (table[slice - 1][n] >> 8);
        }
    }
}

static uint32_t
crc_by_table(uint32_t crc, const uint8_t *at, size_t left)
{
    for (; left >= 8; at += 8, left -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^
              table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
              table[0][at[7]];
    }
    for (; left; at++, left--) {
        crc = table[0][(crc ^ *at) & 0xff] ^ (crc >> 8);
    }
    return crc;
}

typedef uint32_t (*Crc)(uint32_t, const uint8_t *, size_t);
static Crc crc_of = crc_by_table;

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t crc, const uint8_t *at, size_t left)
{
    uint64_t wide = crc;
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; left; at++, left--) {
        crc = __builtin_ia32_crc32qi(crc, *at);
    }
    return crc;
}
#endif

static uint64_t
big(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) {
        value = value << 8 | at[i];
    }
    return value;
}

static int64_t
int32_at(const uint8_t *at)
{
    return (int32_t)(uint32_t)big(at, 4);
}

static int64_t
int16_at(const uint8_t *at)
{
    return (int16_t)(uint16_t)big(at, 2);
}

typedef struct {
    const uint8_t *start;
    int64_t at, end, origin;
    int64_t *rows;
    int64_t room, count;
    int check_crc;
    int stop;
} Scan;

static void
run(Scan *scan)
{
    scan->stop = FULL;
    while (scan->count < scan->room) {
        const uint8_t *at = scan->start + scan->at;
        int64_t left = scan->end - scan->at;
        if (left < HEADER_BYTES) {
            scan->stop = SHORT;
            return;
        }
        int64_t length = int32_at(at + 8);
        if (length < MIN_LENGTH) {
            scan->stop = BAD_LENGTH;
            return;
        }
        if (at[16] != MAGIC) {
            scan->stop = BAD_MAGIC;
            return;
        }
        int64_t size = OVERHEAD_BYTES + length;
        if (size > left && scan->check_crc) {
            scan->stop = SHORT;
            return;
        }
        int64_t *row = scan->rows + scan->count * COLUMNS;
        uint64_t base = big(at, 8);
        row[0] = scan->origin + scan->at;
        row[1] = size;
        row[2] = (int64_t)base;
        row[3] = (int64_t)(base + (uint64_t)int32_at(at + 23));
        row[4] = int32_at(at + 12);
        row[5] = int16_at(at + CRC_FROM);
        row[6] = (int64_t)big(at + 17, 4);
        row[7] = row[6];
        if (scan->check_crc) {
            row[7] = (int64_t)(~crc_of(0xffffffffu, at + CRC_FROM, (size_t)(size - CRC_FROM)) &
                               0xffffffffu);
        }
        row[8] = (int64_t)big(at + 27, 8);
        row[9] = (int64_t)big(at + 35, 8);
        row[10] = (int64_t)big(at + 43, 8);
        row[11] = int32_at(at + 53);
        row[12] = int32_at(at + 57);
        scan->count++;
        if (size > left) {
            /* A scan of headers only may skip a batch that ends after this buffer. */
            scan->at += size;
            scan->stop = SHORT;
            return;
        }
        scan->at += size;
    }
}

static PyObject *
scan_rows(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 6) {
        return PyErr_Format(PyExc_TypeError, "6 arguments expected, got %zd", count);
    }
    Scan scan = {0};
    scan.at = PyLong_AsLongLong(arguments[1]);
    scan.end = PyLong_AsLongLong(arguments[2]);
    scan.origin = PyLong_AsLongLong(arguments[3]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    scan.check_crc = PyObject_IsTrue(arguments[5]);
    if (scan.check_crc < 0) {
        return NULL;
    }
    Py_buffer data, rows;
    if (PyObject_GetBuffer(arguments[0], &data, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[4], &rows, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) {
        PyBuffer_Release(&data);
        return NULL;
    }
    PyObject *result = NULL;
    if (scan.at < 0 || scan.at > scan.end || scan.end > data.len) {
        PyErr_Format(PyExc_ValueError, "bytes %lld to %lld are not in a buffer of %zd",
                     (long long)scan.at, (long long)scan.end, data.len);
    }
    else {
        scan.start = data.buf;
        scan.rows = rows.buf;
        scan.room = rows.len / (Py_ssize_t)(COLUMNS * sizeof(int64_t));
        Py_BEGIN_ALLOW_THREADS
        run(&scan);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("LLi", (long long)scan.count, (long long)scan.at, scan.stop);
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef methods[] = {
    {"scan_rows", (PyCFunction)(void (*)(void))scan_rows, METH_FASTCALL,
     "Read the batches of a buffer into rows; see tidelog.spark.segments.batch_scan."},
    {NULL, NULL, 0, NULL},
};

static int
fill(PyObject *module)
{
    fill_table();
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        crc_of = crc_by_instruction;
    }
#endif
    return PyModule_AddIntConstant(module, "VERSION", SCAN_VERSION);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, fill},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scan", "The compiled scan over batch headers.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__scan(void)
{
    return PyModuleDef_Init(&definition);
}
