/* The data path in C: the walk over a stream's frames, and the pump that moves chunks.
 *
 * Optional. receiver/wire/walk.py and receiver/gateway/connection/direction.py do the same in Python,
 * and say what each attribute and method means. They are what this file is tested against, and what
 * runs where it is not built. It holds only what is done for every chunk of unwatched frames;
 * whatever else a chunk needs is done by the Python classes above it.
 *
 * One interpreter, one thread: the event loop's. Nothing here releases the GIL, because sockets are
 * non-blocking and a chunk has at most 256 KiB.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#define BUFFER_BYTES 262144
#define WATCHED_KEYS 128

/* Bytes of a head: of a request, length, API key and version; of a response, length and correlation id. */
#define REQUEST_HEAD 8
#define RESPONSE_HEAD 8
#define LEAST_REQUEST 8
#define LEAST_RESPONSE 4

/* The versions that were seen (receiver/wire/seen_versions.py). */
#define SEEN_KEYS 96
#define HIGHEST_VERSION 253

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

static int32_t read_int32(const unsigned char *at)
{
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static int16_t read_int16(const unsigned char *at)
{
    return (int16_t)(uint16_t)(at[0] << 8 | at[1]);
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
} Walk;

static PyTypeObject *walk_type;

/* Keep where a walk stopped; return how many bytes of the chunk pass. */
static Py_ssize_t stop_at(Walk *walk, long long position, long long frames, Py_ssize_t end)
{
    walk->frames = frames;
    walk->skip = position > end ? position - end : 0;
    return position > end ? end : (Py_ssize_t)position;
}

static void note_version(unsigned char *seen, int16_t key, int16_t version)
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
    (void)closure;
    if (!((Walk *)self)->awaits)
        Py_RETURN_NONE;
    return PyLong_FromLong(((Walk *)self)->awaited);
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

static void Walk_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((Walk *)self)->seen_in);
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
    {Py_tp_dealloc, Walk_dealloc},
    {Py_tp_members, walk_members},
    {Py_tp_getset, walk_properties},
    {Py_tp_methods, walk_methods},
    {Py_tp_doc, "The walk over the frames of a stream; see receiver/wire/walk.py."},
    {0, NULL},
};

static PyType_Spec walk_spec = {
    "receiver.native._speedups.Walk", sizeof(Walk), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, walk_slots};

/* -- Pump -------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    long long bytes_read;
    PyObject *backlog;   /* bytes that wait for the sink */
    PyObject *limit;     /* returns how many bytes a turn may read, or None */
    PyObject *walk;      /* a Walk, or None: Python moves the bytes */
    long room;           /* bytes to read at most */
    int source, sink;    /* descriptors; negative: no plain socket */
    char ended, paused, shuts_down, supervised, meters, from_client;
    PyObject *counts_in; /* whose memory `counts` is; NULL: nothing is counted */
    long long *counts;
} Pump;

static unsigned char buffer[BUFFER_BYTES];

/* Names of the methods that Python's part has. */
static PyObject *name_move, *name_end, *name_source_failed, *name_sink_failed, *name_rewrite, *name_give,
    *name_keep, *name_moved;

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
    PyObject *chunk = PyMemoryView_FromMemory((char *)buffer, count, PyBUF_READ), *argument = NULL, *result;
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

static void count_frames(const Pump *pump)
{
    const Walk *walk = (const Walk *)pump->walk;
    if (pump->counts == NULL)
        return;
    if (pump->from_client) {
        pump->counts[REQUESTS] = walk->frames;
        pump->counts[LAST_KEY] = walk->last_key;
    } else
        pump->counts[RESPONSES] = walk->frames;
}

/* Send a chunk whose frames all pass. */
static int forward(Pump *pump, Py_ssize_t count)
{
    PyObject *self = (PyObject *)pump, *result;
    ssize_t sent;
    if (pump->sink < 0 || !is_empty(pump->backlog))
        return call_with_chunk(self, name_give, count, -1);
    do
        sent = send(pump->sink, buffer, (size_t)count, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (sent > 0 && pump->counts != NULL && !pump->from_client)
        pump->counts[BYTES_OUT] += sent;
    if (sent == count) {
        if (pump->room != BUFFER_BYTES)
            pump->room *= 2;
        return 0;
    }
    if (PyErr_Occurred())
        return -1;
    if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
        result = call_with_error(self, name_sink_failed, errno);
        if (result == NULL)
            return -1;
        Py_DECREF(result);
        return 0;
    }
    return call_with_chunk(self, name_keep, count, sent < 0 ? 0 : sent);
}

static PyObject *Pump_readable(PyObject *self, PyObject *unused)
{
    Pump *pump = (Pump *)self;
    const long room = pump->room;
    ssize_t count;
    Py_ssize_t passed;
    PyObject *result;
    (void)unused;
    if (pump->source < 0 || pump->walk == NULL || pump->walk == Py_None || pump->limit != Py_None || pump->meters)
        return PyObject_CallMethodObjArgs(self, name_move, NULL);
    do
        count = recv(pump->source, buffer, (size_t)(room < BUFFER_BYTES ? room : BUFFER_BYTES), 0);
    while (count < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    if (count < 0) {
        if (PyErr_Occurred())
            return NULL;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            Py_RETURN_FALSE;
        if ((result = call_with_error(self, name_source_failed, errno)) == NULL)
            return NULL;
        Py_DECREF(result);
        Py_RETURN_FALSE;
    }
    if (count == 0) {
        if ((result = PyObject_CallMethodObjArgs(self, name_end, NULL)) == NULL)
            return NULL;
        Py_DECREF(result);
        Py_RETURN_FALSE;
    }
    pump->bytes_read += count;
    if (pump->counts != NULL) {
        arrived(pump->counts);
        if (pump->from_client)
            pump->counts[BYTES_IN] += count;
    }
    passed = walk_chunk((Walk *)pump->walk, buffer, count);
    count_frames(pump);
    if ((passed == count ? forward(pump, count) : call_with_chunk(self, name_rewrite, count, passed)) < 0)
        return NULL;
    if (pump->supervised) {
        if ((result = PyObject_CallMethodObjArgs(self, name_moved, NULL)) == NULL)
            return NULL;
        Py_DECREF(result);
        Py_RETURN_TRUE;
    }
    return PyBool_FromLong(count == room);
}

static int Pump_set_walk(PyObject *self, PyObject *value, void *closure)
{
    Pump *pump = (Pump *)self;
    PyObject *before;
    (void)closure;
    if (value == NULL || !(value == Py_None || PyObject_TypeCheck(value, walk_type))) {
        PyErr_SetString(PyExc_TypeError, "the walk is a Walk or None");
        return -1;
    }
    Py_INCREF(value);
    before = pump->walk;
    pump->walk = value;
    Py_XDECREF(before);
    return 0;
}

static PyObject *Pump_get_walk(PyObject *self, void *closure)
{
    (void)closure;
    Py_INCREF(((Pump *)self)->walk);
    return ((Pump *)self)->walk;
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
    Py_VISIT(pump->counts_in);
    return 0;
}

static int Pump_clear(PyObject *self)
{
    Pump *pump = (Pump *)self;
    Py_CLEAR(pump->backlog);
    Py_CLEAR(pump->limit);
    Py_CLEAR(pump->walk);
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
    {"_source_fd", T_INT, offsetof(Pump, source), 0, NULL},
    {"_sink_fd", T_INT, offsetof(Pump, sink), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef pump_properties[] = {
    {"_walk", Pump_get_walk, Pump_set_walk, NULL, NULL},
    {"_words", Pump_get_words, Pump_set_words, NULL, NULL},
    FLAG("ended", Pump, ended),
    FLAG("paused", Pump, paused),
    FLAG("shuts_down", Pump, shuts_down),
    FLAG("supervised", Pump, supervised),
    FLAG("_meters", Pump, meters),
    FLAG("_from_client", Pump, from_client),
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

/* -- the module -------------------------------------------------------------------------------- */

static int add_names(void)
{
    return (name_move = PyUnicode_InternFromString("_move")) && (name_end = PyUnicode_InternFromString("_end")) &&
           (name_source_failed = PyUnicode_InternFromString("_source_failed")) &&
           (name_sink_failed = PyUnicode_InternFromString("_sink_failed")) &&
           (name_rewrite = PyUnicode_InternFromString("_rewrite")) &&
           (name_give = PyUnicode_InternFromString("give")) &&
           (name_keep = PyUnicode_InternFromString("_keep")) &&
           (name_moved = PyUnicode_InternFromString("_moved"));
}

static int add_types(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &walk_spec, NULL);
    if (type == NULL)
        return -1;
    walk_type = (PyTypeObject *)type; /* kept for Pump_set_walk */
    if (!add_names() || PyModule_AddObjectRef(module, "Walk", type) < 0)
        return -1;
    if ((type = PyType_FromModuleAndSpec(module, &pump_spec, NULL)) == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "Pump", type) < 0) {
        Py_DECREF(type);
        return -1;
    }
    Py_DECREF(type);
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
