/* The data path in C: the walk over a stream's frames, the pump that moves chunks, also of TLS, and the
 * turns that call the pumps of ready sockets.
 *
 * Optional. receiver/wire/walk.py, receiver/gateway/connection/{direction,tls_socket}.py and
 * receiver/turns.py do the same in Python, and say what each attribute and method means. They are what
 * this file is tested against, and what runs where it is not built. It holds only what is done for
 * every chunk of unwatched frames; whatever else a chunk needs is done by the Python classes above it.
 *
 * One interpreter, and one thread for each event loop. Only the wait for events releases the GIL: sockets
 * are non-blocking, and a chunk has at most 256 KiB. OpenSSL is Python's: its objects are called.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#define BUFFER_BYTES 262144
#define PIECE_BYTES 32768 /* what a processor's cache holds from a read to its send */
#define WATCHED_KEYS 128

/* Bytes of a head: of a request, length, API key and version; of a response, length and correlation id. */
#define REQUEST_HEAD 8
#define RESPONSE_HEAD 8
#define LEAST_REQUEST 8
#define LEAST_RESPONSE 4

/* The versions that were seen (receiver/wire/seen_versions.py). */
#define SEEN_KEYS 96
#define HIGHEST_VERSION 253

/* Requests whose responses may name brokers (receiver/wire/addressed_framing.py, receiver/session). */
#define REQUEST_HEAD_AND_ID 12
#define REQUEST_ID_AT 8
#define RESPONSE_ID_AT 4
#define KINDS_OF_VERSIONS 32
#define PASSES 1
#define IS_TRACKED 2
#define IS_PRODUCE 3
#define MOST_KEPT 16384
#define HELD_BYTES 256
#define MAX_COSTLY 32
#define MAX_PENDING 8192
#define MAX_UNCOUNTED 64
#define LITTLE_WORK 32
#define COSTLY_BYTES 2048

/* The words of a connection's counters (receiver/traffic/table.py). */
#define BYTES_IN 1
#define BYTES_OUT 2
#define REQUESTS 3
#define RESPONSES 4
#define LAST_AT 6
#define NEXT_AT 7
#define LAST_KEY 8
#define HISTORY 20
#define INTERVAL_MS 10000
#define INTERVALS 6
#define ENTRY_WORDS 4
#define SLOT_WORDS 68

/* TLS (receiver/gateway/connection/tls_socket.py). */
#define MAX_RECORDS_IN_A_READ 64
#define RECORD_HEADER 5
#define MAX_RECORD (RECORD_HEADER + 16384 + 2048)
#define FIRST_TYPE 20
#define LAST_TYPE 23
#define TLS_CHUNK 65536

/* Turns (receiver/turns.py). */
#define MAX_EVENTS 256
#define ENDING (EPOLLRDHUP | EPOLLHUP | EPOLLERR)
#define SHARE_S 1e-3

/* What a read or a send says beside a number of bytes. */
#define RAISED -1  /* a Python exception is set */
#define BLOCKED -2 /* there is nothing now */
#define FAILED -3  /* the connection has been told */

static int32_t read_int32(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static int16_t read_int16(const unsigned char *at)
{
    return (int16_t)(uint16_t)(at[0] << 8 | at[1]);
}

static void write_int32(unsigned char *at, int32_t value)
{
    const uint32_t bits = (uint32_t)value;
    at[0] = (unsigned char)(bits >> 24);
    at[1] = (unsigned char)(bits >> 16);
    at[2] = (unsigned char)(bits >> 8);
    at[3] = (unsigned char)bits;
}

/* A flag is what Python's `if` makes of its value; T_BOOL would take nothing but True and False. */
static PyObject *get_flag(PyObject *self, void *offset)
{
    return PyBool_FromLong(*((char *)self + (intptr_t)offset));
}

static int set_flag(PyObject *self, PyObject *value, void *offset)
{
    const int is_true = value == NULL ? 0 : PyObject_IsTrue(value);
    if (is_true < 0)
        return -1;
    *((char *)self + (intptr_t)offset) = (char)is_true;
    return 0;
}

#define FLAG(name, type, member) {name, get_flag, set_flag, NULL, (void *)(intptr_t)offsetof(type, member)}

/* Find memory that an object shares, to write to it. The object keeps the memory while it lives, so no
 * buffer stays exported. None: forget it. */
static int use_memory(PyObject *value, Py_ssize_t least, PyObject **owner, void **memory)
{
    PyObject *before = *owner;
    Py_buffer view;
    if (value == NULL || value == Py_None) {
        *owner = NULL;
        *memory = NULL;
    } else {
        if (PyObject_GetBuffer(value, &view, PyBUF_WRITABLE) < 0)
            return -1;
        if (view.len < least) {
            PyErr_Format(PyExc_ValueError, "%zd bytes are needed", least);
            PyBuffer_Release(&view);
            return -1;
        }
        *memory = view.buf;
        PyBuffer_Release(&view);
        Py_INCREF(value);
        *owner = value;
    }
    Py_XDECREF(before);
    return 0;
}

static PyObject *object_or_none(PyObject *object)
{
    PyObject *found = object == NULL ? Py_None : object;
    Py_INCREF(found);
    return found;
}

static int set_checked(PyObject **member, PyObject *value, PyTypeObject *type, const char *expected)
{
    PyObject *before = *member;
    if (value == NULL || !(value == Py_None || PyObject_TypeCheck(value, type))) {
        PyErr_SetString(PyExc_TypeError, expected);
        return -1;
    }
    Py_INCREF(value);
    *member = value;
    Py_XDECREF(before);
    return 0;
}

/* -- PendingTable ------------------------------------------------------------------------------ */

/* A request whose response is awaited. */
typedef struct {
    int32_t awaited;       /* the correlation id that its response will have */
    int32_t own;           /* the client's */
    int16_t key, version;
    long long most;        /* a longer response is not kept as a whole */
    PyObject *request;     /* what Python keeps of it; NULL: the fields above say everything */
} Pending;

/* The requests are in the order of their responses, from `first` on, in a ring. */
typedef struct {
    PyObject_HEAD
    Pending *ring;
    Py_ssize_t size, first, count;
    long long held_bytes, max_held_bytes, undecided, costly, work, counted;
    PyObject *random_number;
    PyObject *units_in; /* whose memory `units` is: the work for all connections of the source */
    long long *units;
} PendingTable;

static PyTypeObject *table_type;

static Pending *first_pending(const PendingTable *table)
{
    return table != NULL && table->count ? &table->ring[table->first] : NULL;
}

static int append_pending(PendingTable *table, const Pending *pending)
{
    if (table->count == table->size) {
        const Py_ssize_t size = table->size ? 2 * table->size : 8;
        Pending *ring = PyMem_Malloc((size_t)size * sizeof *ring);
        Py_ssize_t index;
        if (ring == NULL) {
            PyErr_NoMemory();
            return RAISED;
        }
        for (index = 0; index < table->count; index++)
            ring[index] = table->ring[(table->first + index) % table->size];
        PyMem_Free(table->ring);
        table->ring = ring;
        table->size = size;
        table->first = 0;
    }
    table->ring[(table->first + table->count++) % table->size] = *pending;
    return 0;
}

/* Most connections are idle, so an empty table has no memory. */
static void drop_first(PendingTable *table)
{
    table->first = (table->first + 1) % table->size;
    if (--table->count)
        return;
    PyMem_Free(table->ring);
    table->ring = NULL;
    table->size = table->first = 0;
}

/* As Session._track_in_place, for a request whose response costs one unit of work; return whether it is
 * tracked. If not, Python decides. */
static int track(PendingTable *table, int16_t key, int16_t version, unsigned char *id)
{
    Pending pending = {0, read_int32(id), key, version, MOST_KEPT, NULL};
    PyObject *number;
    long random;
    if (table->costly >= MAX_COSTLY - 1 || table->count >= MAX_PENDING || table->random_number == NULL ||
        table->units == NULL)
        return 0;
    if ((number = PyObject_CallFunctionObjArgs(table->random_number, NULL)) == NULL)
        return RAISED;
    random = PyLong_AsLong(number);
    Py_DECREF(number);
    if (random == -1 && PyErr_Occurred())
        return RAISED;
    if (random < 0 || random > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a random number has 31 bits");
        return RAISED;
    }
    pending.awaited = -1 - (int32_t)random;
    if (append_pending(table, &pending) < 0)
        return RAISED;
    table->held_bytes += HELD_BYTES;
    table->work++;
    if (table->units != NULL)
        ++*table->units;
    write_int32(id, pending.awaited);
    return 1;
}

/* As Session._take_plain, for a request that C has tracked. */
static void take(PendingTable *table, unsigned char *id)
{
    write_int32(id, first_pending(table)->own);
    drop_first(table);
    table->held_bytes -= HELD_BYTES;
    table->work--;
    if (table->units != NULL)
        --*table->units;
}

/* Whether the caller need not look at the session: Session.take_tracked would surely return false. */
static int is_quiet(const PendingTable *table)
{
    const long long more = table->count - table->counted;
    return more > -MAX_UNCOUNTED && more < MAX_UNCOUNTED && table->work < LITTLE_WORK &&
           table->held_bytes <= table->max_held_bytes;
}

static PyObject *describe_pending(const Pending *pending)
{
    PyObject *items[] = {PyLong_FromLong(pending->awaited), PyLong_FromLong(pending->key),
                         PyLong_FromLong(pending->version), PyLong_FromLong(pending->own)};
    PyObject *result = NULL;
    size_t index;
    if (items[0] != NULL && items[1] != NULL && items[2] != NULL && items[3] != NULL)
        result = PyTuple_Pack(4, items[0], items[1], items[2], items[3]);
    for (index = 0; index < sizeof items / sizeof *items; index++)
        Py_XDECREF(items[index]);
    return result;
}

static PyObject *PendingTable_first(PyObject *self, PyObject *unused)
{
    const Pending *pending = first_pending((PendingTable *)self);
    (void)unused;
    if (pending == NULL)
        Py_RETURN_NONE;
    return pending->request == NULL ? describe_pending(pending) : object_or_none(pending->request);
}

static PyObject *PendingTable_pop(PyObject *self, PyObject *unused)
{
    PendingTable *table = (PendingTable *)self;
    const Pending *pending = first_pending(table);
    PyObject *result;
    (void)unused;
    if (pending == NULL)
        return PyErr_Format(PyExc_IndexError, "no request is pending");
    result = pending->request == NULL ? describe_pending(pending) : pending->request;
    if (result != NULL)
        drop_first(table);
    return result;
}

static PyObject *PendingTable_append(PyObject *self, PyObject *args)
{
    Pending pending = {0, 0, 0, 0, 0, NULL};
    int awaited;
    if (!PyArg_ParseTuple(args, "OiL", &pending.request, &awaited, &pending.most))
        return NULL;
    pending.awaited = awaited;
    if (append_pending((PendingTable *)self, &pending) < 0)
        return NULL;
    Py_INCREF(pending.request);
    Py_RETURN_NONE;
}

static PyObject *PendingTable_get_units(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((PendingTable *)self)->units_in);
}

static int PendingTable_set_units(PyObject *self, PyObject *value, void *closure)
{
    PendingTable *table = (PendingTable *)self;
    (void)closure;
    return use_memory(value, (Py_ssize_t)sizeof(long long), &table->units_in, (void **)&table->units);
}

static PyObject *PendingTable_get_count(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromSsize_t(((PendingTable *)self)->count);
}

static PyObject *PendingTable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    (void)args;
    (void)kwargs;
    return allocate(type, 0);
}

static int PendingTable_traverse(PyObject *self, visitproc visit, void *arg)
{
    PendingTable *table = (PendingTable *)self;
    Py_ssize_t index;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(table->random_number);
    Py_VISIT(table->units_in);
    for (index = 0; index < table->count; index++)
        Py_VISIT(table->ring[(table->first + index) % table->size].request);
    return 0;
}

static int PendingTable_clear(PyObject *self)
{
    PendingTable *table = (PendingTable *)self;
    Py_CLEAR(table->random_number);
    table->units = NULL;
    Py_CLEAR(table->units_in);
    while (table->count) {
        PyObject *request = first_pending(table)->request;
        drop_first(table);
        Py_XDECREF(request);
    }
    return 0;
}

static void PendingTable_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    PendingTable_clear(self);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef table_members[] = {
    {"held_bytes", T_LONGLONG, offsetof(PendingTable, held_bytes), 0, NULL},
    {"max_held_bytes", T_LONGLONG, offsetof(PendingTable, max_held_bytes), 0, NULL},
    {"undecided", T_LONGLONG, offsetof(PendingTable, undecided), 0, NULL},
    {"costly", T_LONGLONG, offsetof(PendingTable, costly), 0, NULL},
    {"work", T_LONGLONG, offsetof(PendingTable, work), 0, NULL},
    {"counted", T_LONGLONG, offsetof(PendingTable, counted), 0, NULL},
    {"_random_number", T_OBJECT_EX, offsetof(PendingTable, random_number), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef table_properties[] = {
    {"count", PendingTable_get_count, NULL, NULL, NULL},
    {"_units", PendingTable_get_units, PendingTable_set_units, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef table_methods[] = {
    {"_append", PendingTable_append, METH_VARARGS, NULL},
    {"_first", PendingTable_first, METH_NOARGS, NULL},
    {"_pop", PendingTable_pop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_new, PendingTable_new},
    {Py_tp_traverse, PendingTable_traverse},
    {Py_tp_clear, PendingTable_clear},
    {Py_tp_dealloc, PendingTable_dealloc},
    {Py_tp_members, table_members},
    {Py_tp_getset, table_properties},
    {Py_tp_methods, table_methods},
    {Py_tp_doc, "The requests whose responses are awaited; see receiver/session/pending.py."},
    {0, NULL},
};

static PyType_Spec table_spec = {"receiver.native._speedups.PendingTable", sizeof(PendingTable), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, table_slots};

/* -- Walk -------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    long long skip;   /* bytes still to pass of the current frame; negative: Python handles the next */
    long long frames; /* frames that have begun */
    long long longest; /* longest request that may be announced */
    char requests;    /* requests are walked, and else responses */
    char every_key;   /* no request passes */
    char awaits;      /* `awaited` is set */
    int32_t awaited;
    short last_key;
    unsigned char watched[WATCHED_KEYS];
    PyObject *seen_in;   /* whose memory `seen` is; NULL: versions are not noted */
    unsigned char *seen;
    long long most_replaced; /* the longest response that is replaced */
    PendingTable *table; /* addresses are replaced: what is awaited; NULL: they are kept, or Python walks */
    PyObject *kinds;     /* bytes: by API key and version, what becomes of a request; NULL: it is read */
} Walk;

static PyTypeObject *walk_type;

/* Keep where a walk stopped; return how many bytes of the chunk pass. */
static Py_ssize_t stop_at(Walk *walk, long long position, long long frames, Py_ssize_t end)
{
    walk->frames = frames;
    walk->skip = position > end ? position - end : 0;
    return position > end ? end : (Py_ssize_t)position;
}

static void note_version(unsigned char *seen, int key, int version)
{
    unsigned char value;
    if (key < 0 || key >= SEEN_KEYS)
        return;
    value = (unsigned char)((version < 0 ? 0 : version > HIGHEST_VERSION ? HIGHEST_VERSION : version) + 1);
    if (seen[key] == 0 || value < seen[key])
        seen[key] = value;
    if (value > seen[SEEN_KEYS + key])
        seen[SEEN_KEYS + key] = value;
}

static Py_ssize_t walk_requests(Walk *walk, const unsigned char *chunk, Py_ssize_t end)
{
    long long position = walk->skip, frames = walk->frames;
    const long long last = (long long)end - REQUEST_HEAD;
    if (position < 0)
        return 0;
    while (position <= last) {
        const int32_t length = read_int32(chunk + position);
        const int16_t key = read_int16(chunk + position + 4);
        walk->last_key = key;
        if (walk->every_key || (key >= 0 && key < WATCHED_KEYS && walk->watched[key]) ||
            length > walk->longest || length < LEAST_REQUEST)
            break;
        if (walk->seen != NULL)
            note_version(walk->seen, key, read_int16(chunk + position + 6));
        position += (long long)length + 4;
        frames++;
    }
    return stop_at(walk, position, frames, end);
}

static Py_ssize_t walk_responses(Walk *walk, const unsigned char *chunk, Py_ssize_t end)
{
    long long position = walk->skip, frames = walk->frames;
    const long long last = (long long)end - RESPONSE_HEAD;
    if (position < 0)
        return 0;
    while (position <= last) {
        const int32_t length = read_int32(chunk + position);
        if (length < LEAST_RESPONSE || (walk->awaits && read_int32(chunk + position + 4) == walk->awaited))
            break;
        position += (long long)length + 4;
        frames++;
    }
    return stop_at(walk, position, frames, end);
}

/* -- walks where addresses are replaced -- */

static int is_in(Py_ssize_t at, Py_ssize_t end)
{
    return at >= 0 && at < end;
}

/* As look_for_acks in k00_produce.py; -1: nothing is said. */
static int look_for_acks(const unsigned char *chunk, Py_ssize_t at, Py_ssize_t end)
{
    int size;
    at += 8; /* the client id's length */
    if (at + 2 > end)
        return -1;
    size = chunk[at] << 8 | chunk[at + 1];
    at += 2 + (size < 0x8000 ? size : 0);
    if (at + 2 > end || chunk[at])
        return -1;
    size = chunk[at + 1];
    if (size >= 0x80)
        return -1;
    at += 2 + (size ? size - 1 : 0);
    return at + 2 > end ? -1 : chunk[at] << 8 | chunk[at + 1];
}

/* What becomes of a request: PASSES, IS_TRACKED if its response is awaited, or 0: Python reads it. */
static int kind_of_request(const unsigned char *kinds, int key, int version, const unsigned char *chunk,
                           Py_ssize_t begin, Py_ssize_t end)
{
    int kind, acks;
    if (key >= WATCHED_KEYS || version >= KINDS_OF_VERSIONS)
        return 0;
    kind = kinds[key * KINDS_OF_VERSIONS + version];
    if (kind != IS_PRODUCE)
        return kind;
    acks = look_for_acks(chunk, begin, end);
    return acks < 0 ? 0 : acks ? IS_TRACKED : PASSES;
}

/* As AddressedRequests.passing, but it leaves more to Python. */
static Py_ssize_t pass_addressed_requests(Walk *walk, PendingTable *table, const unsigned char *kinds,
                                          unsigned char *chunk, Py_ssize_t end)
{
    long long position = walk->skip, frames = walk->frames;
    const long long last = (long long)end - REQUEST_HEAD_AND_ID;
    while (position <= last) {
        const int32_t length = read_int32(chunk + position);
        const int key = (uint16_t)read_int16(chunk + position + 4);
        const int version = (uint16_t)read_int16(chunk + position + 6);
        const long long after = position + 4 + length;
        int kind;
        walk->last_key = (short)key;
        if (length > walk->longest || length < LEAST_REQUEST)
            break;
        if (walk->seen != NULL)
            note_version(walk->seen, key, version);
        kind = kind_of_request(kinds, key, version, chunk, (Py_ssize_t)position + 4,
                               after < end ? (Py_ssize_t)after : end);
        if (kind == IS_TRACKED &&
            (kind = track(table, (int16_t)key, (int16_t)version, chunk + position + REQUEST_ID_AT)) < 0)
            return RAISED;
        if (kind == 0)
            break;
        position = after;
        frames++;
    }
    return stop_at(walk, position, frames, end);
}

/* A call of Python's random numbers may take away what the walk uses, so it is kept meanwhile. */
static Py_ssize_t walk_addressed_requests(Walk *walk, unsigned char *chunk, Py_ssize_t end)
{
    PendingTable *table = walk->table;
    PyObject *kinds = walk->kinds;
    Py_ssize_t passed;
    Py_INCREF((PyObject *)table);
    Py_INCREF(kinds);
    passed = pass_addressed_requests(walk, table, (const unsigned char *)PyBytes_AsString(kinds), chunk, end);
    Py_DECREF(kinds);
    Py_DECREF((PyObject *)table);
    return passed;
}

/* As has_no_endpoints in k01_fetch.py; `there` ends what is there. */
static int fetched_no_endpoints(const unsigned char *body, Py_ssize_t at, Py_ssize_t there, long long end)
{
    int topics, partitions;
    if (!is_in(at += 4 + 2 + 4, there) || (topics = body[at++]) >= 0x80)
        return 0;
    for (; topics > 1; topics--) {
        if (!is_in(at += 16, there) || (partitions = body[at++]) >= 0x80)
            return 0;
        for (; partitions > 1; partitions--) {
            long length;
            if (!is_in(at += 4 + 2 + 8 + 8 + 8, there) || body[at] > 1)
                return 0;
            if (!is_in(at += 1 + 4, there))
                return 0;
            length = body[at++];
            if (length >= 0x80) {
                if (!is_in(at, there))
                    return 0;
                length = (length & 0x7F) | (long)(body[at] & 0x7F) << 7;
                if (body[at++] >= 0x80) {
                    if (!is_in(at, there) || body[at] >= 0x80)
                        return 0;
                    length |= (long)body[at++] << 14;
                }
            }
            at += length ? length - 1 : 0;
            if (at >= there)
                return topics == 2 && partitions == 2 && at == end - 3;
            if (body[at++])
                return 0;
        }
        if (!is_in(at, there) || body[at++])
            return 0;
    }
    return at == end - 1 && at < there && !body[at];
}

/* As has_no_endpoints in k00_produce.py. */
static int produced_no_endpoints(const unsigned char *body, Py_ssize_t at, Py_ssize_t end, int version)
{
    int topics, partitions;
    if (!is_in(at, end) || (topics = body[at++]) >= 0x80)
        return 0;
    for (; topics > 1; topics--) {
        if (version >= 13)
            at += 16;
        else if (!is_in(at, end) || body[at] >= 0x80)
            return 0;
        else
            at += body[at] ? body[at] : 1;
        if (!is_in(at, end) || (partitions = body[at++]) >= 0x80)
            return 0;
        for (; partitions > 1; partitions--) {
            at += 4 + 2 + 8 + 8 + 8;
            if (!is_in(at + 2, end) || body[at] > 1 || body[at + 1] > 1 || body[at + 2])
                return 0;
            at += 3;
        }
        if (!is_in(at, end) || body[at++])
            return 0;
    }
    at += 4;
    return at == end - 1 && !body[at];
}

/* As NamingRequest.is_plain, for a response from `begin` to `after`, of which the end may be missing. */
static int is_plain(const Pending *pending, const unsigned char *chunk, Py_ssize_t begin, Py_ssize_t end,
                    long long after)
{
    const Py_ssize_t body = begin + 5, there = after < end ? (Py_ssize_t)after : end;
    if (pending->request != NULL || body >= there || chunk[body - 1])
        return 0;
    if (pending->key == 1)
        return fetched_no_endpoints(chunk, body, there, after);
    return pending->key == 0 && after <= end && produced_no_endpoints(chunk, body, there, pending->version);
}

/* As AddressedResponses.passing, but it leaves more to Python. */
static Py_ssize_t walk_addressed_responses(Walk *walk, unsigned char *chunk, Py_ssize_t end)
{
    long long position = walk->skip, frames = walk->frames;
    const long long last = (long long)end - RESPONSE_HEAD;
    while (position <= last) {
        const int32_t length = read_int32(chunk + position);
        const long long after = position + 4 + length;
        const Pending *pending = first_pending(walk->table);
        if (length < LEAST_RESPONSE)
            break;
        if (pending != NULL && read_int32(chunk + position + RESPONSE_ID_AT) == pending->awaited) {
            if (!is_plain(pending, chunk, (Py_ssize_t)position + 4, end, after))
                break;
            take(walk->table, chunk + position + RESPONSE_ID_AT);
        }
        position = after;
        frames++;
    }
    return stop_at(walk, position, frames, end);
}

/* Whether the addresses of brokers are replaced, and C may walk now. */
static int walks_addressed(const Walk *walk)
{
    return walk->table != NULL && walk->skip >= 0 && (!walk->requests || walk->kinds != NULL);
}

static Py_ssize_t walk_chunk(Walk *walk, const unsigned char *chunk, Py_ssize_t end)
{
    return walk->requests ? walk_requests(walk, chunk, end) : walk_responses(walk, chunk, end);
}

static PyObject *Walk_passing(PyObject *self, PyObject *chunk)
{
    Py_buffer view;
    Py_ssize_t passed;
    if (PyObject_GetBuffer(chunk, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    passed = walk_chunk((Walk *)self, view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(passed);
}

static PyObject *Walk_watch(PyObject *self, PyObject *keys)
{
    Walk *walk = (Walk *)self;
    unsigned char watched[WATCHED_KEYS] = {0};
    PyObject *key, *iterator = PyObject_GetIter(keys);
    if (iterator == NULL)
        return NULL;
    while ((key = PyIter_Next(iterator)) != NULL) {
        const long value = PyLong_AsLong(key);
        Py_DECREF(key);
        if (value == -1 && PyErr_Occurred())
            break;
        if (value < 0 || value >= WATCHED_KEYS) {
            PyErr_Format(PyExc_ValueError, "API key %ld can't be watched: 0 to %d can", value, WATCHED_KEYS - 1);
            break;
        }
        watched[value] = 1;
    }
    Py_DECREF(iterator);
    if (PyErr_Occurred())
        return NULL;
    memcpy(walk->watched, watched, sizeof watched);
    Py_RETURN_NONE;
}

static PyObject *Walk_get_awaited(PyObject *self, void *closure)
{
    const Walk *walk = (Walk *)self;
    const Pending *pending = first_pending(walk->table);
    (void)closure;
    if (walk->table == NULL ? !walk->awaits : pending == NULL)
        Py_RETURN_NONE;
    return PyLong_FromLong(pending == NULL ? walk->awaited : pending->awaited);
}

static PyObject *Walk_get_most_replaced(PyObject *self, void *closure)
{
    const Walk *walk = (Walk *)self;
    const Pending *pending = first_pending(walk->table);
    (void)closure;
    return PyLong_FromLongLong(pending == NULL ? walk->most_replaced : pending->most);
}

static int Walk_set_most_replaced(PyObject *self, PyObject *value, void *closure)
{
    const long long most = value == NULL ? 0 : PyLong_AsLongLong(value);
    (void)closure;
    if (most == -1 && PyErr_Occurred())
        return -1;
    ((Walk *)self)->most_replaced = most;
    return 0;
}

static PyObject *Walk_get_table(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none((PyObject *)((Walk *)self)->table);
}

static int Walk_set_table(PyObject *self, PyObject *value, void *closure)
{
    Walk *walk = (Walk *)self;
    PendingTable *before = walk->table;
    (void)closure;
    if (value != NULL && value != Py_None && !PyObject_TypeCheck(value, table_type)) {
        PyErr_SetString(PyExc_TypeError, "the table is a PendingTable or None");
        return -1;
    }
    walk->table = value == Py_None ? NULL : (PendingTable *)value;
    Py_XINCREF((PyObject *)walk->table);
    Py_XDECREF((PyObject *)before);
    return 0;
}

static PyObject *Walk_get_kinds(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Walk *)self)->kinds);
}

static int Walk_set_kinds(PyObject *self, PyObject *value, void *closure)
{
    Walk *walk = (Walk *)self;
    PyObject *before = walk->kinds;
    (void)closure;
    if (value == NULL || !PyBytes_Check(value) || PyBytes_Size(value) != WATCHED_KEYS * KINDS_OF_VERSIONS) {
        PyErr_Format(PyExc_ValueError, "kinds are %d bytes", WATCHED_KEYS * KINDS_OF_VERSIONS);
        return -1;
    }
    Py_INCREF(value);
    walk->kinds = value;
    Py_XDECREF(before);
    return 0;
}

static int Walk_set_awaited(PyObject *self, PyObject *value, void *closure)
{
    Walk *walk = (Walk *)self;
    long long number;
    (void)closure;
    if (value == NULL || value == Py_None) {
        walk->awaits = 0;
        return 0;
    }
    number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    /* A number that is no int32 equals none, as in Python. */
    walk->awaits = number >= INT32_MIN && number <= INT32_MAX;
    walk->awaited = (int32_t)number;
    return 0;
}

static PyObject *Walk_get_seen(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Walk *)self)->seen_in);
}

static int Walk_set_seen(PyObject *self, PyObject *value, void *closure)
{
    Walk *walk = (Walk *)self;
    (void)closure;
    return use_memory(value, 2 * SEEN_KEYS, &walk->seen_in, (void **)&walk->seen);
}

static int Walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Walk *walk = (Walk *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(walk->seen_in);
    Py_VISIT((PyObject *)walk->table);
    Py_VISIT(walk->kinds);
    return 0;
}

static int Walk_clear(PyObject *self)
{
    Walk *walk = (Walk *)self;
    PyObject *table = (PyObject *)walk->table;
    walk->seen = NULL;
    Py_CLEAR(walk->seen_in);
    walk->table = NULL;
    Py_XDECREF(table);
    Py_CLEAR(walk->kinds);
    return 0;
}

static void Walk_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    Walk_clear(self);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef walk_members[] = {
    {"_skip", T_LONGLONG, offsetof(Walk, skip), 0, NULL},
    {"frames", T_LONGLONG, offsetof(Walk, frames), 0, NULL},
    {"_max_frame_bytes", T_LONGLONG, offsetof(Walk, longest), 0, NULL},
    {"last_key", T_SHORT, offsetof(Walk, last_key), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef walk_properties[] = {
    {"awaited", Walk_get_awaited, Walk_set_awaited, NULL, NULL},
    {"max_replaced_bytes", Walk_get_most_replaced, Walk_set_most_replaced, NULL, NULL},
    {"_table", Walk_get_table, Walk_set_table, NULL, NULL},
    {"_kinds", Walk_get_kinds, Walk_set_kinds, NULL, NULL},
    {"_seen", Walk_get_seen, Walk_set_seen, NULL, NULL},
    FLAG("_walks_requests", Walk, requests),
    FLAG("_every_key", Walk, every_key),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef walk_methods[] = {
    {"passing", Walk_passing, METH_O, NULL},
    {"_watch", Walk_watch, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot walk_slots[] = {
    {Py_tp_traverse, Walk_traverse},
    {Py_tp_clear, Walk_clear},
    {Py_tp_dealloc, Walk_dealloc},
    {Py_tp_members, walk_members},
    {Py_tp_getset, walk_properties},
    {Py_tp_methods, walk_methods},
    {Py_tp_doc, "The walk over the frames of a stream; see receiver/wire/walk.py."},
    {0, NULL},
};

static PyType_Spec walk_spec = {"receiver.native._speedups.Walk", sizeof(Walk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, walk_slots};

/* -- TlsState ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *read, *write, *pending; /* of the SSLObject */
    PyObject *feed, *take;            /* give ciphertext to OpenSSL, and take it */
    PyObject *ciphertext;             /* received, but not given to OpenSSL yet */
    PyObject *unsent;                 /* ciphertext that the kernel has not taken yet */
    PyObject *error;                  /* for the next read, or None */
    long long encrypted;              /* bytes of the next data to send that are in `unsent` already */
    char drained, more, ended, rest;
} TlsState;

static PyTypeObject *tls_type;

static PyObject *TlsState_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    (void)args;
    (void)kwargs;
    return allocate(type, 0);
}

static int TlsState_traverse(PyObject *self, visitproc visit, void *arg)
{
    TlsState *tls = (TlsState *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(tls->read);
    Py_VISIT(tls->write);
    Py_VISIT(tls->pending);
    Py_VISIT(tls->feed);
    Py_VISIT(tls->take);
    Py_VISIT(tls->ciphertext);
    Py_VISIT(tls->unsent);
    Py_VISIT(tls->error);
    return 0;
}

static int TlsState_clear(PyObject *self)
{
    TlsState *tls = (TlsState *)self;
    Py_CLEAR(tls->read);
    Py_CLEAR(tls->write);
    Py_CLEAR(tls->pending);
    Py_CLEAR(tls->feed);
    Py_CLEAR(tls->take);
    Py_CLEAR(tls->ciphertext);
    Py_CLEAR(tls->unsent);
    Py_CLEAR(tls->error);
    return 0;
}

static void TlsState_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    TlsState_clear(self);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef tls_members[] = {
    {"read", T_OBJECT_EX, offsetof(TlsState, read), 0, NULL},
    {"write", T_OBJECT_EX, offsetof(TlsState, write), 0, NULL},
    {"pending", T_OBJECT_EX, offsetof(TlsState, pending), 0, NULL},
    {"feed", T_OBJECT_EX, offsetof(TlsState, feed), 0, NULL},
    {"take", T_OBJECT_EX, offsetof(TlsState, take), 0, NULL},
    {"ciphertext", T_OBJECT_EX, offsetof(TlsState, ciphertext), 0, NULL},
    {"unsent", T_OBJECT_EX, offsetof(TlsState, unsent), 0, NULL},
    {"error", T_OBJECT, offsetof(TlsState, error), 0, NULL},
    {"encrypted", T_LONGLONG, offsetof(TlsState, encrypted), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef tls_properties[] = {
    FLAG("drained", TlsState, drained),
    FLAG("more", TlsState, more),
    FLAG("ended", TlsState, ended),
    FLAG("rest", TlsState, rest),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot tls_slots[] = {
    {Py_tp_new, TlsState_new},
    {Py_tp_traverse, TlsState_traverse},
    {Py_tp_clear, TlsState_clear},
    {Py_tp_dealloc, TlsState_dealloc},
    {Py_tp_members, tls_members},
    {Py_tp_getset, tls_properties},
    {Py_tp_doc, "What a TLS connection holds; see receiver/gateway/connection/tls_socket.py."},
    {0, NULL},
};

static PyType_Spec tls_spec = {"receiver.native._speedups.TlsState", sizeof(TlsState), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, tls_slots};

/* -- Pump -------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    long long bytes_read;
    PyObject *backlog;   /* bytes that wait for the sink */
    PyObject *limit;     /* returns how many bytes a turn may read, or None */
    PyObject *walk;      /* a Walk, or None: Python moves the bytes */
    PyObject *source_tls, *sink_tls; /* a TlsState, or None: a plain socket */
    long room;           /* bytes to read at most */
    long costly_bytes;   /* the same behind a frame, where frames may be costly to pass */
    int source, sink;    /* descriptors; negative: Python moves the bytes */
    char ended, paused, shuts_down, supervised, meters, from_client, reading;
    PyObject *counts_in; /* whose memory `counts` is; NULL: nothing is counted */
    long long *counts;
} Pump;

static unsigned char buffer[BUFFER_BYTES];

/* Four full records, and the start of a record from an earlier call. */
static unsigned char cipher[5 * MAX_RECORD];

/* Names of the methods that Python's part has. */
static PyObject *name_move, *name_end, *name_source_failed, *name_sink_failed, *name_rewrite, *name_give,
    *name_keep, *name_moved, *name_read_failed, *name_write_failed, *name_raise, *name_passed, *name_wait,
    *name_note_due, *name_serve_waiting, *name_on_error;

static PyObject *system_error(int number)
{
    errno = number;
    PyErr_SetFromErrno(PyExc_OSError); /* its subclass by the number, as the socket module does */
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return error;
}

static PyObject *call_with_error(PyObject *self, PyObject *name, int number)
{
    PyObject *error = system_error(number), *result;
    if (error == NULL)
        return NULL;
    result = PyObject_CallMethodObjArgs(self, name, error, NULL);
    Py_DECREF(error);
    return result;
}

/* Give `count` bytes of the buffer to a method of Python's part. */
static int call_with_chunk(PyObject *self, PyObject *name, Py_ssize_t count, Py_ssize_t number)
{
    PyObject *chunk = PyMemoryView_FromMemory((char *)buffer, count, PyBUF_WRITE), *argument = NULL, *result;
    if (chunk == NULL)
        return -1;
    if (number >= 0 && (argument = PyLong_FromSsize_t(number)) == NULL) {
        Py_DECREF(chunk);
        return -1;
    }
    result = PyObject_CallMethodObjArgs(self, name, chunk, argument, NULL);
    Py_DECREF(chunk);
    Py_XDECREF(argument);
    if (result == NULL)
        return -1;
    Py_DECREF(result);
    return 0;
}

static int is_walk(PyObject *walk)
{
    return walk != NULL && walk != Py_None;
}

static int is_empty(PyObject *bytes)
{
    return bytes != NULL && PyObject_Length(bytes) == 0;
}

/* Note that bytes have arrived now, before they are counted. */
static void arrived(long long *counts)
{
    struct timespec clock;
    long long now, interval, *entry;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &clock);
    now = clock.tv_sec * 1000LL + clock.tv_nsec / 1000000;
    counts[LAST_AT] = now;
    if (now < counts[NEXT_AT])
        return;
    interval = now / INTERVAL_MS;
    entry = counts + HISTORY + interval % INTERVALS * ENTRY_WORDS;
    entry[1] = counts[BYTES_IN];
    entry[2] = counts[BYTES_OUT];
    entry[3] = counts[REQUESTS];
    entry[0] = interval;
    counts[NEXT_AT] = (interval + 1) * INTERVAL_MS;
}

static void count_frames(const Pump *pump, const Walk *walk)
{
    if (pump->counts == NULL)
        return;
    if (pump->from_client) {
        pump->counts[REQUESTS] = walk->frames;
        pump->counts[LAST_KEY] = walk->last_key;
    } else
        pump->counts[RESPONSES] = walk->frames;
}

/* -- the pump's TLS ---------------------------------------------------------------------------- */

/* Received bytes that OpenSSL has not got; they are in `cipher`. */
typedef struct {
    unsigned char *at;
    Py_ssize_t left;
} Ciphertext;

static int incomplete(void)
{
    PyErr_SetString(PyExc_ValueError, "the TlsState lacks an attribute");
    return RAISED;
}

static void replace(PyObject **member, PyObject *value)
{
    PyObject *before = *member;
    *member = value;
    Py_XDECREF(before);
}

/* Call an object with a part of memory, and for reads with its size before it. */
static Py_ssize_t call_with_memory(PyObject *callable, unsigned char *at, Py_ssize_t size, int reads)
{
    PyObject *memory, *number, *result = NULL;
    Py_ssize_t count = RAISED;
    if (callable == NULL)
        return incomplete();
    if ((memory = PyMemoryView_FromMemory((char *)at, size, reads ? PyBUF_WRITE : PyBUF_READ)) == NULL)
        return RAISED;
    if (!reads)
        result = PyObject_CallFunctionObjArgs(callable, memory, NULL);
    else if ((number = PyLong_FromSsize_t(size)) != NULL) {
        result = PyObject_CallFunctionObjArgs(callable, number, memory, NULL);
        Py_DECREF(number);
    }
    Py_DECREF(memory);
    if (result == NULL)
        return RAISED;
    count = PyLong_AsSsize_t(result);
    Py_DECREF(result);
    if ((count < 0 || count > size) && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "%zd of %zd bytes", count, size);
    return PyErr_Occurred() ? RAISED : count;
}

static int load_ciphertext(TlsState *tls, Ciphertext *rest)
{
    Py_buffer view;
    if (tls->ciphertext == NULL)
        return incomplete();
    if (PyObject_GetBuffer(tls->ciphertext, &view, PyBUF_SIMPLE) < 0)
        return RAISED;
    rest->at = cipher;
    rest->left = view.len;
    if (view.len > (Py_ssize_t)sizeof cipher)
        PyErr_SetString(PyExc_ValueError, "more ciphertext than a connection holds");
    else
        memcpy(cipher, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? RAISED : 0;
}

static int store_ciphertext(TlsState *tls, const Ciphertext *rest)
{
    PyObject *bytes, *view;
    if (rest->left == 0 && is_empty(tls->ciphertext))
        return 0;
    if ((bytes = PyBytes_FromStringAndSize((char *)rest->at, rest->left)) == NULL)
        return RAISED;
    view = PyMemoryView_FromObject(bytes);
    Py_DECREF(bytes);
    if (view == NULL)
        return RAISED;
    replace(&tls->ciphertext, view);
    return 0;
}

/* Give the exception that is set, or None, to a method of Python's part; return whether that is true.
 * Before a read failed, what it has not used is kept; Python's part may forget it. */
static int call_with_exception(PyObject *self, PyObject *name, TlsState *tls, const Ciphertext *rest)
{
    PyObject *type, *error, *traceback, *result = NULL;
    int is_true = RAISED;
    PyErr_Fetch(&type, &error, &traceback);
    if (type != NULL)
        PyErr_NormalizeException(&type, &error, &traceback);
    if (error != NULL && traceback != NULL)
        PyException_SetTraceback(error, traceback);
    if (rest == NULL || store_ciphertext(tls, rest) == 0)
        result = PyObject_CallMethodObjArgs(self, name, error == NULL ? Py_None : error, NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    if (result != NULL) {
        is_true = PyObject_IsTrue(result);
        Py_DECREF(result);
    }
    return is_true;
}

/* As _record_size in tls_socket.py: 0 if the first record is incomplete. */
static Py_ssize_t record_size(const Ciphertext *rest)
{
    Py_ssize_t size;
    if (rest->left < RECORD_HEADER)
        return 0;
    size = RECORD_HEADER + (rest->at[3] << 8 | rest->at[4]);
    if (size > MAX_RECORD || rest->at[0] < FIRST_TYPE || rest->at[0] > LAST_TYPE)
        return rest->left;
    return size <= rest->left ? size : 0;
}

/* Find the next record; whole ones that are held come before what the kernel has. */
static Py_ssize_t next_record(const Pump *pump, TlsState *tls, Ciphertext *rest)
{
    Py_ssize_t size, space;
    ssize_t count;
    while ((size = record_size(rest)) == 0) {
        if (tls->ended || tls->drained)
            return BLOCKED;
        memmove(cipher, rest->at, (size_t)rest->left); /* less than a record */
        rest->at = cipher;
        space = (Py_ssize_t)sizeof cipher - rest->left;
        do
            count = recv(pump->source, cipher + rest->left, (size_t)space, 0);
        while (count < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
        if (count < 0) {
            if (!PyErr_Occurred() && (errno == EAGAIN || errno == EWOULDBLOCK))
                return BLOCKED;
            if (!PyErr_Occurred())
                PyErr_SetFromErrno(PyExc_OSError);
            return RAISED;
        }
        tls->ended = count == 0;
        tls->drained = count < space;
        rest->left += count;
    }
    return size;
}

/* Give the next record to OpenSSL; BLOCKED: there is none. */
static Py_ssize_t feed_record(const Pump *pump, TlsState *tls, Ciphertext *rest)
{
    unsigned char *record;
    const Py_ssize_t size = next_record(pump, tls, rest);
    if (size < 0)
        return size;
    record = rest->at;
    rest->at += size;
    rest->left -= size;
    return call_with_memory(tls->feed, record, size, 0);
}

static int has_rest(TlsState *tls)
{
    PyObject *pending;
    int is_true;
    if (!tls->rest)
        return 0;
    if (tls->pending == NULL)
        return incomplete();
    if ((pending = PyObject_CallFunctionObjArgs(tls->pending, NULL)) == NULL)
        return RAISED;
    is_true = PyObject_IsTrue(pending);
    Py_DECREF(pending);
    return is_true;
}

/* As TlsSocket.recv_into, into `buffer`. */
static Py_ssize_t tls_receive(Pump *pump, TlsState *tls, Py_ssize_t room)
{
    Ciphertext rest;
    Py_ssize_t count = 0, size, records = 0;
    int goes_on = 1, pending = has_rest(tls);
    if (pending < 0 || load_ciphertext(tls, &rest) < 0)
        return RAISED;
    tls->more = tls->drained = tls->rest = 0;
    while (count < room && (tls->error == NULL || tls->error == Py_None)) {
        size = 0;
        if (!pending) {
            size = records < MAX_RECORDS_IN_A_READ ? feed_record(pump, tls, &rest) : BLOCKED;
            if (size == BLOCKED)
                break;
            records++;
        }
        pending = 0;
        if (size >= 0 && (size = call_with_memory(tls->read, buffer + count, room - count, 1)) > 0) {
            count += size;
            continue;
        }
        if ((goes_on = call_with_exception((PyObject *)pump, name_read_failed, tls, &rest)) < 0)
            return RAISED;
        if (!goes_on)
            break;
    }
    if (goes_on) {
        tls->more = count == room || records == MAX_RECORDS_IN_A_READ;
        tls->rest = count == room;
        if (store_ciphertext(tls, &rest) < 0)
            return RAISED;
    }
    if (count)
        return count;
    if (tls->error != NULL && tls->error != Py_None)
        return FAILED;
    return tls->more || !tls->ended ? BLOCKED : 0;
}

/* Take the ciphertext of encrypted data, if it was not taken yet. */
static int take_ciphertext(TlsState *tls)
{
    PyObject *ciphertext;
    if (tls->unsent == NULL || tls->take == NULL)
        return incomplete();
    if (tls->encrypted == 0 || !is_empty(tls->unsent))
        return 0;
    if ((ciphertext = PyObject_CallFunctionObjArgs(tls->take, NULL)) == NULL)
        return RAISED;
    replace(&tls->unsent, ciphertext);
    return 0;
}

/* Send what OpenSSL has written; return whether the kernel has taken all of it. */
static int tls_flush(const Pump *pump, TlsState *tls)
{
    Py_buffer view;
    PyObject *left;
    ssize_t sent;
    int number;
    if (take_ciphertext(tls) < 0)
        return RAISED;
    if (PyObject_GetBuffer(tls->unsent, &view, PyBUF_SIMPLE) < 0)
        return RAISED;
    do
        sent = view.len == 0 ? 0 : send(pump->sink, view.buf, (size_t)view.len, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    left = sent < 0 ? NULL : PyBytes_FromStringAndSize((char *)view.buf + sent, view.len - sent);
    number = errno;
    PyBuffer_Release(&view);
    if (sent < 0 && !PyErr_Occurred()) {
        if (number == EAGAIN || number == EWOULDBLOCK)
            return 0;
        errno = number;
        PyErr_SetFromErrno(PyExc_OSError);
    }
    if (left == NULL)
        return RAISED;
    replace(&tls->unsent, left);
    return PyObject_Length(left) == 0;
}

static int tls_encrypt(TlsState *tls, unsigned char *at, Py_ssize_t size)
{
    while (tls->encrypted < size) {
        const Py_ssize_t written =
            call_with_memory(tls->write, at + tls->encrypted, size - (Py_ssize_t)tls->encrypted, 0);
        if (written < 0)
            return RAISED;
        tls->encrypted += written;
    }
    return 0;
}

/* As TlsSocket.send, from `buffer`. */
static Py_ssize_t tls_send(Pump *pump, TlsState *tls, Py_ssize_t count)
{
    Py_ssize_t sent = 0;
    int flushed;
    while ((flushed = tls_flush(pump, tls)) > 0) {
        if (tls->encrypted < 0 || tls->encrypted > count - sent)
            return incomplete();
        sent += (Py_ssize_t)tls->encrypted;
        tls->encrypted = 0;
        if (sent == count)
            return sent;
        if ((flushed = tls_encrypt(tls, buffer + sent, count - sent < TLS_CHUNK ? count - sent : TLS_CHUNK)) < 0)
            break;
    }
    if (flushed < 0) {
        const int has_failed = call_with_exception((PyObject *)pump, name_write_failed, tls, NULL);
        if (has_failed)
            return has_failed < 0 ? RAISED : FAILED;
    }
    return sent ? sent : BLOCKED;
}

/* -- reading and sending ----------------------------------------------------------------------- */

/* As a socket's recv_into, into `buffer`. */
static Py_ssize_t plain_receive(Pump *pump, Py_ssize_t room)
{
    PyObject *result;
    ssize_t count;
    do
        count = recv(pump->source, buffer, (size_t)room, 0);
    while (count < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (count >= 0)
        return count;
    if (PyErr_Occurred())
        return RAISED;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return BLOCKED;
    if ((result = call_with_error((PyObject *)pump, name_source_failed, errno)) == NULL)
        return RAISED;
    Py_DECREF(result);
    return FAILED;
}

/* As a socket's send, from `buffer`. */
static Py_ssize_t plain_send(Pump *pump, Py_ssize_t count)
{
    PyObject *result;
    ssize_t sent;
    do
        sent = send(pump->sink, buffer, (size_t)count, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (sent >= 0)
        return sent;
    if (PyErr_Occurred())
        return RAISED;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return BLOCKED;
    if ((result = call_with_error((PyObject *)pump, name_sink_failed, errno)) == NULL)
        return RAISED;
    Py_DECREF(result);
    return FAILED;
}

/* A call of Python's part may take the state away, so it is kept meanwhile. */
static Py_ssize_t through_tls(Pump *pump, PyObject *state, Py_ssize_t count,
                              Py_ssize_t (*move)(Pump *, TlsState *, Py_ssize_t))
{
    Py_INCREF(state);
    count = move(pump, (TlsState *)state, count);
    Py_DECREF(state);
    return count;
}

/* Send a chunk whose frames all pass. */
static int forward(Pump *pump, Py_ssize_t count)
{
    Py_ssize_t sent;
    if (pump->sink < 0 || !is_empty(pump->backlog))
        return call_with_chunk((PyObject *)pump, name_give, count, -1);
    sent = pump->sink_tls == Py_None ? plain_send(pump, count) : through_tls(pump, pump->sink_tls, count, tls_send);
    if (sent == RAISED)
        return RAISED;
    if (sent == FAILED)
        return 0;
    if (sent > 0 && pump->counts != NULL && !pump->from_client)
        pump->counts[BYTES_OUT] += sent;
    if (sent != count)
        return call_with_chunk((PyObject *)pump, name_keep, count, sent == BLOCKED ? 0 : sent);
    if (pump->room != BUFFER_BYTES)
        pump->room *= 2;
    return 0;
}

/* Handle a read that brought no bytes. */
static int no_bytes(Pump *pump, Py_ssize_t count)
{
    PyObject *result;
    if (count == RAISED)
        return RAISED;
    if (count == BLOCKED || (count == FAILED && pump->source_tls == Py_None))
        return 0;
    result = PyObject_CallMethodObjArgs((PyObject *)pump, count == 0 ? name_end : name_raise, NULL);
    Py_XDECREF(result);
    return result == NULL ? RAISED : 0;
}

/* Walk over a chunk where frames may be costly to pass. C passes what is cheap, so no clock is read. */
static Py_ssize_t walk_metered(Pump *pump, Walk *walk, Py_ssize_t count)
{
    const Py_ssize_t passed = walk->requests ? walk_addressed_requests(walk, buffer, count)
                                             : walk_addressed_responses(walk, buffer, count);
    if (passed == count)
        pump->costly_bytes = 2 * pump->costly_bytes < COSTLY_BYTES ? 2 * pump->costly_bytes : COSTLY_BYTES;
    return passed;
}

/* Whether the connection need not look at what has changed by frames that passed. */
static int needs_no_look(const Pump *pump)
{
    const Walk *walk = (const Walk *)pump->walk;
    return !pump->meters || (is_walk(pump->walk) && walk->table != NULL && is_quiet(walk->table));
}

/* Walk over the bytes that were read, and send them. */
static int pass_on(Pump *pump, Py_ssize_t count)
{
    Walk *walk = (Walk *)pump->walk;
    Py_ssize_t passed;
    PyObject *result;
    char is_supervised;
    pump->bytes_read += count;
    if (pump->counts != NULL) {
        arrived(pump->counts);
        if (pump->from_client)
            pump->counts[BYTES_IN] += count;
    }
    Py_INCREF((PyObject *)walk);
    passed = pump->meters ? walk_metered(pump, walk, count) : walk_chunk(walk, buffer, count);
    count_frames(pump, walk);
    Py_DECREF((PyObject *)walk);
    if (passed == RAISED)
        return RAISED;
    if ((passed == count ? forward(pump, count) : call_with_chunk((PyObject *)pump, name_rewrite, count, passed)) < 0)
        return RAISED;
    is_supervised = pump->supervised;
    if (!is_supervised && needs_no_look(pump))
        return 0;
    result = PyObject_CallMethodObjArgs((PyObject *)pump, is_supervised ? name_moved : name_passed, NULL);
    Py_XDECREF(result);
    return result == NULL ? RAISED : is_supervised;
}

/* As TlsDirection.readable: more may be held for which epoll gives no event. */
static int has_unread(const Pump *pump)
{
    const TlsState *tls = (const TlsState *)pump->source_tls;
    if (pump->source_tls == Py_None || !pump->reading)
        return 0;
    return tls->more || tls->ended || (tls->error != NULL && tls->error != Py_None);
}

/* Whether the pump itself may read, and Python's part need not. */
static int reads(const Pump *pump)
{
    return pump->source >= 0 && pump->room > 0 && is_walk(pump->walk) && pump->limit == Py_None &&
           (!pump->meters || (walks_addressed((Walk *)pump->walk) && pump->costly_bytes > 0));
}

/* Bytes to read at most; behind a frame fewer, where frames may be costly to pass. */
static Py_ssize_t room_of(const Pump *pump)
{
    const long long room = pump->room < BUFFER_BYTES ? pump->room : BUFFER_BYTES;
    const long long most = pump->meters ? ((const Walk *)pump->walk)->skip + pump->costly_bytes : room;
    return (Py_ssize_t)(room < most ? room : most);
}

/* Move at most `room` bytes; return whether there may be more. */
static int move_piece(Pump *pump, Py_ssize_t room, Py_ssize_t *moved)
{
    const int is_tls = pump->source_tls != Py_None;
    int again;
    *moved = is_tls ? through_tls(pump, pump->source_tls, room, tls_receive) : plain_receive(pump, room);
    if (*moved > 0 && !(is_walk(pump->walk) && (!pump->meters || walks_addressed((Walk *)pump->walk)))) {
        PyErr_SetString(PyExc_RuntimeError, "the walk is gone");
        return RAISED;
    }
    if ((again = *moved > 0 ? pass_on(pump, *moved) : no_bytes(pump, *moved)) < 0)
        return RAISED;
    return is_tls ? has_unread(pump) : again || *moved == room;
}

static PyObject *Pump_readable(PyObject *self, PyObject *unused)
{
    Pump *pump = (Pump *)self;
    Py_ssize_t left, piece, moved;
    int again;
    (void)unused;
    if (!reads(pump))
        return PyObject_CallMethodObjArgs(self, name_move, NULL);
    left = room_of(pump);
    do {
        piece = pump->source_tls == Py_None && left > PIECE_BYTES ? PIECE_BYTES : left;
        if ((again = move_piece(pump, piece, &moved)) < 0)
            return NULL;
        left -= piece;
        /* Python's part may have changed what is read. */
    } while (again && left > 0 && pump->reading && !pump->supervised && reads(pump));
    return PyBool_FromLong(again);
}

static int Pump_set_source_tls(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    return set_checked(&((Pump *)self)->source_tls, value, tls_type, "a source's TLS is a TlsState or None");
}

static int Pump_set_sink_tls(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    return set_checked(&((Pump *)self)->sink_tls, value, tls_type, "a sink's TLS is a TlsState or None");
}

static PyObject *Pump_get_source_tls(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Pump *)self)->source_tls);
}

static PyObject *Pump_get_sink_tls(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Pump *)self)->sink_tls);
}

static int Pump_set_walk(PyObject *self, PyObject *value, void *closure)
{
    (void)closure;
    return set_checked(&((Pump *)self)->walk, value, walk_type, "the walk is a Walk or None");
}

static PyObject *Pump_get_walk(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Pump *)self)->walk);
}

static PyObject *Pump_get_words(PyObject *self, void *closure)
{
    (void)closure;
    return object_or_none(((Pump *)self)->counts_in);
}

static int Pump_set_words(PyObject *self, PyObject *value, void *closure)
{
    Pump *pump = (Pump *)self;
    (void)closure;
    return use_memory(value, SLOT_WORDS * (Py_ssize_t)sizeof(long long), &pump->counts_in, (void **)&pump->counts);
}

static PyObject *Pump_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Pump *pump = (Pump *)allocate(type, 0);
    (void)args;
    (void)kwargs;
    if (pump == NULL)
        return NULL;
    pump->source = pump->sink = -1;
    pump->room = BUFFER_BYTES;
    pump->shuts_down = 1;
    Py_INCREF(Py_None);
    pump->limit = Py_None;
    Py_INCREF(Py_None);
    pump->walk = Py_None;
    Py_INCREF(Py_None);
    pump->source_tls = Py_None;
    Py_INCREF(Py_None);
    pump->sink_tls = Py_None;
    if ((pump->backlog = PyBytes_FromStringAndSize(NULL, 0)) == NULL) {
        Py_DECREF(pump);
        return NULL;
    }
    return (PyObject *)pump;
}

static int Pump_traverse(PyObject *self, visitproc visit, void *arg)
{
    Pump *pump = (Pump *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(pump->backlog);
    Py_VISIT(pump->limit);
    Py_VISIT(pump->walk);
    Py_VISIT(pump->source_tls);
    Py_VISIT(pump->sink_tls);
    Py_VISIT(pump->counts_in);
    return 0;
}

static int Pump_clear(PyObject *self)
{
    Pump *pump = (Pump *)self;
    Py_CLEAR(pump->backlog);
    Py_CLEAR(pump->limit);
    Py_CLEAR(pump->walk);
    Py_CLEAR(pump->source_tls);
    Py_CLEAR(pump->sink_tls);
    pump->counts = NULL;
    Py_CLEAR(pump->counts_in);
    return 0;
}

static void Pump_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    Pump_clear(self);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef pump_members[] = {
    {"bytes_read", T_LONGLONG, offsetof(Pump, bytes_read), 0, NULL},
    {"_backlog", T_OBJECT_EX, offsetof(Pump, backlog), 0, NULL},
    {"limit", T_OBJECT_EX, offsetof(Pump, limit), 0, NULL},
    {"_room", T_LONG, offsetof(Pump, room), 0, NULL},
    {"_costly_bytes", T_LONG, offsetof(Pump, costly_bytes), 0, NULL},
    {"_source_fd", T_INT, offsetof(Pump, source), 0, NULL},
    {"_sink_fd", T_INT, offsetof(Pump, sink), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef pump_properties[] = {
    {"_walk", Pump_get_walk, Pump_set_walk, NULL, NULL},
    {"_source_tls", Pump_get_source_tls, Pump_set_source_tls, NULL, NULL},
    {"_sink_tls", Pump_get_sink_tls, Pump_set_sink_tls, NULL, NULL},
    {"_words", Pump_get_words, Pump_set_words, NULL, NULL},
    FLAG("ended", Pump, ended),
    FLAG("paused", Pump, paused),
    FLAG("shuts_down", Pump, shuts_down),
    FLAG("supervised", Pump, supervised),
    FLAG("_meters", Pump, meters),
    FLAG("_from_client", Pump, from_client),
    FLAG("_reading", Pump, reading),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef pump_methods[] = {
    {"readable", Pump_readable, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pump_slots[] = {
    {Py_tp_new, Pump_new},
    {Py_tp_traverse, Pump_traverse},
    {Py_tp_clear, Pump_clear},
    {Py_tp_dealloc, Pump_dealloc},
    {Py_tp_members, pump_members},
    {Py_tp_getset, pump_properties},
    {Py_tp_methods, pump_methods},
    {Py_tp_doc, "The pump of one direction; see receiver/gateway/connection/direction.py."},
    {0, NULL},
};

static PyType_Spec pump_spec = {"receiver.native._speedups.Pump", sizeof(Pump), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, pump_slots};

/* -- Turns ------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    long long turn;
    double left_s;
    PyObject *waiting;
} ShareTime;

static PyTypeObject *share_type;

static void ShareTime_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((ShareTime *)self)->waiting);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef share_members[] = {
    {"turn", T_LONGLONG, offsetof(ShareTime, turn), 0, NULL},
    {"left_s", T_DOUBLE, offsetof(ShareTime, left_s), 0, NULL},
    {"waiting", T_OBJECT_EX, offsetof(ShareTime, waiting), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot share_slots[] = {
    {Py_tp_dealloc, ShareTime_dealloc},
    {Py_tp_members, share_members},
    {Py_tp_doc, "A peer's time left in a turn; see receiver/turns.py."},
    {0, NULL},
};

static PyType_Spec share_spec = {"receiver.native._speedups.ShareTime", sizeof(ShareTime), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, share_slots};

typedef struct {
    PyObject_HEAD
    PyObject *callbacks, *due, *waiting; /* dicts, while the object lives */
    PyObject *clock;                     /* returns seconds; None: the system's */
    double longest_turn_s, polled;
    long long turn, deferred;
    int epoll;
    char interrupted;
} TurnState;

/* As perf_counter. */
static int read_clock(const TurnState *turns, double *seconds)
{
    PyObject *result;
    struct timespec now;
    if (turns->clock == NULL || turns->clock == Py_None) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        *seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        return 0;
    }
    if ((result = PyObject_CallFunctionObjArgs(turns->clock, NULL)) == NULL)
        return RAISED;
    *seconds = PyFloat_AsDouble(result);
    Py_DECREF(result);
    return PyErr_Occurred() ? RAISED : 0;
}

static int done(PyObject *result)
{
    Py_XDECREF(result);
    return result == NULL ? RAISED : 0;
}

static int note_due(TurnState *turns, PyObject *fd, uint32_t events)
{
    PyObject *number = PyLong_FromUnsignedLong(events), *result;
    if (number == NULL)
        return RAISED;
    result = PyObject_CallMethodObjArgs((PyObject *)turns, name_note_due, fd, number, NULL);
    Py_DECREF(number);
    return done(result);
}

static int wait_for_turn(TurnState *turns, PyObject *fd, ShareTime *share, int ending)
{
    return done(PyObject_CallMethodObjArgs((PyObject *)turns, name_wait, fd, (PyObject *)share,
                                           ending ? Py_True : Py_False, NULL));
}

/* Call a direct callback; return whether it has more. Its exception is reported, and ends nothing. */
static int call_direct(TurnState *turns, PyObject *callback)
{
    PyObject *result = PyObject_CallFunctionObjArgs(callback, NULL);
    int again = result == NULL ? RAISED : PyObject_IsTrue(result);
    Py_XDECREF(result);
    if (again < 0 && PyErr_ExceptionMatches(PyExc_Exception))
        again = call_with_exception((PyObject *)turns, name_on_error, NULL, NULL) < 0 ? RAISED : 0;
    return again;
}

static int serve_socket(TurnState *turns, PyObject *fd, PyObject *callback, ShareTime *share, int ending,
                        double *started)
{
    double now;
    const Py_ssize_t waits = share->waiting == NULL ? 0 : PyObject_Length(share->waiting);
    int again;
    if (waits < 0)
        return RAISED;
    if (waits > 0) /* behind the peer's sockets that wait already */
        return wait_for_turn(turns, fd, share, ending);
    if (share->turn != turns->turn) {
        share->turn = turns->turn;
        share->left_s = SHARE_S;
    } else if (share->left_s <= 0.0) {
        turns->deferred++;
        return wait_for_turn(turns, fd, share, ending);
    }
    if ((again = call_direct(turns, callback)) < 0 || read_clock(turns, &now) < 0)
        return RAISED;
    share->left_s -= now - *started;
    *started = now;
    return again || ending ? wait_for_turn(turns, fd, share, again && ending) : 0;
}

static int serve_event(TurnState *turns, const struct epoll_event *event, double *started)
{
    PyObject *fd = PyLong_FromLong(event->data.fd), *entry, *callback, *share;
    int result = RAISED;
    if (fd == NULL)
        return RAISED;
    entry = PyDict_GetItemWithError(turns->callbacks, fd);
    if (entry == NULL) {
        result = PyErr_Occurred() ? RAISED : note_due(turns, fd, event->events);
        Py_DECREF(fd);
        return result;
    }
    Py_INCREF(entry); /* the callback may remove it */
    if ((callback = PyTuple_GetItem(entry, 0)) != NULL && (share = PyTuple_GetItem(entry, 1)) != NULL) {
        if (PyObject_TypeCheck(share, share_type))
            result = serve_socket(turns, fd, callback, (ShareTime *)share, (event->events & ENDING) != 0, started);
        else
            PyErr_SetString(PyExc_TypeError, "a callback's share is a ShareTime");
    }
    Py_DECREF(entry);
    Py_DECREF(fd);
    return result;
}

/* Wait for events, at most so many milliseconds; -1: without an end. */
static int wait_for_events(const TurnState *turns, struct epoll_event *ready, int milliseconds)
{
    int count, number;
    Py_BEGIN_ALLOW_THREADS
    count = epoll_wait(turns->epoll, ready, MAX_EVENTS, milliseconds);
    number = errno;
    Py_END_ALLOW_THREADS
    /* A signal's handler runs here, because no Python may run for long. */
    if (PyErr_CheckSignals() < 0)
        return RAISED;
    if (count >= 0 || number == EINTR)
        return count < 0 ? 0 : count;
    errno = number;
    PyErr_SetFromErrno(PyExc_OSError);
    return RAISED;
}

static int take_turn(TurnState *turns, int milliseconds)
{
    struct epoll_event ready[MAX_EVENTS];
    PyObject *number, *result;
    double now, started;
    int count, index;
    if (read_clock(turns, &now) < 0)
        return RAISED;
    turns->turn++;
    if (now - turns->polled > turns->longest_turn_s)
        turns->longest_turn_s = now - turns->polled;
    if (PyDict_Size(turns->waiting) || PyDict_Size(turns->due))
        milliseconds = 0;
    if ((count = wait_for_events(turns, ready, milliseconds)) < 0 || read_clock(turns, &started) < 0)
        return RAISED;
    turns->polled = started;
    for (index = 0; index < count; index++)
        if (serve_event(turns, &ready[index], &started) < 0)
            return RAISED;
    if (!PyDict_Size(turns->waiting))
        return 0;
    if ((number = PyFloat_FromDouble(started)) == NULL)
        return RAISED;
    result = PyObject_CallMethodObjArgs((PyObject *)turns, name_serve_waiting, number, NULL);
    Py_DECREF(number);
    return done(result);
}

/* Rounded up, as epoll does. Rounded down, the loop would spin before a timer. */
static int in_milliseconds(double seconds)
{
    const double milliseconds = seconds * 1e3;
    int whole;
    if (!(milliseconds > 0.0))
        return 0;
    if (milliseconds >= INT_MAX)
        return INT_MAX;
    whole = (int)milliseconds;
    return whole < milliseconds ? whole + 1 : whole;
}

static PyObject *TurnState_serve(PyObject *self, PyObject *timeout)
{
    TurnState *turns = (TurnState *)self;
    const int may_end = timeout != Py_None;
    double left_s = 0.0, deadline = 0.0, now;
    if (may_end) {
        left_s = PyFloat_AsDouble(timeout);
        if ((left_s == -1.0 && PyErr_Occurred()) || read_clock(turns, &now) < 0)
            return NULL;
        deadline = now + left_s;
    }
    turns->interrupted = 0;
    for (;;) {
        if (take_turn(turns, may_end ? in_milliseconds(left_s) : -1) < 0)
            return NULL;
        if (PyDict_Size(turns->due) || turns->interrupted)
            Py_RETURN_NONE;
        if (!may_end)
            continue;
        if (read_clock(turns, &now) < 0)
            return NULL;
        if ((left_s = deadline - now) <= 0.0)
            Py_RETURN_NONE;
    }
}

static PyObject *TurnState_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    TurnState *turns = (TurnState *)allocate(type, 0);
    (void)args;
    (void)kwargs;
    if (turns == NULL)
        return NULL;
    turns->epoll = -1;
    if ((turns->callbacks = PyDict_New()) == NULL || (turns->due = PyDict_New()) == NULL ||
        (turns->waiting = PyDict_New()) == NULL)
        Py_CLEAR(turns);
    return (PyObject *)turns;
}

static int TurnState_traverse(PyObject *self, visitproc visit, void *arg)
{
    TurnState *turns = (TurnState *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(turns->callbacks);
    Py_VISIT(turns->due);
    Py_VISIT(turns->waiting);
    Py_VISIT(turns->clock);
    return 0;
}

/* The dicts stay, and the collector empties them. */
static int TurnState_clear(PyObject *self)
{
    Py_CLEAR(((TurnState *)self)->clock);
    return 0;
}

static void TurnState_dealloc(PyObject *self)
{
    TurnState *turns = (TurnState *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(turns->callbacks);
    Py_XDECREF(turns->due);
    Py_XDECREF(turns->waiting);
    Py_XDECREF(turns->clock);
    release(self);
    Py_DECREF(type);
}

static PyMemberDef turn_members[] = {
    {"callbacks", T_OBJECT_EX, offsetof(TurnState, callbacks), READONLY, NULL},
    {"due", T_OBJECT_EX, offsetof(TurnState, due), READONLY, NULL},
    {"deferred", T_LONGLONG, offsetof(TurnState, deferred), 0, NULL},
    {"longest_turn_s", T_DOUBLE, offsetof(TurnState, longest_turn_s), 0, NULL},
    {"_clock", T_OBJECT, offsetof(TurnState, clock), 0, NULL},
    {"_epoll_fd", T_INT, offsetof(TurnState, epoll), 0, NULL},
    {"_polled", T_DOUBLE, offsetof(TurnState, polled), 0, NULL},
    {"_turn", T_LONGLONG, offsetof(TurnState, turn), 0, NULL},
    {"_waiting", T_OBJECT_EX, offsetof(TurnState, waiting), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef turn_properties[] = {
    FLAG("interrupted", TurnState, interrupted),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef turn_methods[] = {
    {"serve", TurnState_serve, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot turn_slots[] = {
    {Py_tp_new, TurnState_new},
    {Py_tp_traverse, TurnState_traverse},
    {Py_tp_clear, TurnState_clear},
    {Py_tp_dealloc, TurnState_dealloc},
    {Py_tp_members, turn_members},
    {Py_tp_getset, turn_properties},
    {Py_tp_methods, turn_methods},
    {Py_tp_doc, "The turns of direct callbacks; see receiver/turns.py."},
    {0, NULL},
};

static PyType_Spec turn_spec = {"receiver.native._speedups.TurnState", sizeof(TurnState), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, turn_slots};

/* -- the module -------------------------------------------------------------------------------- */

static int add_names(void)
{
    return (name_move = PyUnicode_InternFromString("_move")) && (name_end = PyUnicode_InternFromString("_end")) &&
           (name_source_failed = PyUnicode_InternFromString("_source_failed")) &&
           (name_sink_failed = PyUnicode_InternFromString("_sink_failed")) &&
           (name_rewrite = PyUnicode_InternFromString("_rewrite")) &&
           (name_give = PyUnicode_InternFromString("give")) &&
           (name_keep = PyUnicode_InternFromString("_keep")) &&
           (name_moved = PyUnicode_InternFromString("_moved")) &&
           (name_read_failed = PyUnicode_InternFromString("_read_failed")) &&
           (name_write_failed = PyUnicode_InternFromString("_write_failed")) &&
           (name_raise = PyUnicode_InternFromString("_raise")) &&
           (name_passed = PyUnicode_InternFromString("_passed")) &&
           (name_wait = PyUnicode_InternFromString("wait")) &&
           (name_note_due = PyUnicode_InternFromString("_note_due")) &&
           (name_serve_waiting = PyUnicode_InternFromString("_serve_waiting")) &&
           (name_on_error = PyUnicode_InternFromString("on_error"));
}

static PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

/* The types of attributes are kept, for their checks. */
static int add_types(PyObject *module)
{
    PyTypeObject *pump, *turns;
    if (!add_names() || (table_type = add_type(module, "PendingTable", &table_spec)) == NULL ||
        (walk_type = add_type(module, "Walk", &walk_spec)) == NULL ||
        (tls_type = add_type(module, "TlsState", &tls_spec)) == NULL ||
        (share_type = add_type(module, "ShareTime", &share_spec)) == NULL ||
        (pump = add_type(module, "Pump", &pump_spec)) == NULL)
        return -1;
    Py_DECREF(pump);
    if ((turns = add_type(module, "TurnState", &turn_spec)) == NULL)
        return -1;
    Py_DECREF(turns);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, add_types},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "receiver.native._speedups", "The data path in C.", 0, NULL, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__speedups(void)
{
    return PyModuleDef_Init(&module_definition);
}
