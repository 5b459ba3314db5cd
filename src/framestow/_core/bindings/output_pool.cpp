// Binding of OutputPool: the buffers that batches are unpacked into.
//
// New memory for each batch costs more than unpacking, because the operating system zeroes every page. An array of the
// pool is built over a BufferInUse, which its views refer to also: views of views, torch.from_numpy, memoryviews and
// DLPack. When the last of them goes, the buffer returns to the pool, in any thread.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "../pages.hpp"
#include "arguments.hpp"
#include "module.hpp"

namespace framestow {
namespace {

constexpr std::align_val_t kAlignment{64};                 // XLA requires it of memory that it uses without a copy
constexpr std::size_t kLeastPaged = std::size_t{1} << 20;  // buffers of so many bytes have pages of their own

// Memory with arbitrary contents.
class Buffer {
public:
    explicit Buffer(std::size_t size)
        : size_(size),
          bytes_(size < kLeastPaged
                     ? static_cast<std::uint8_t*>(::operator new(std::max<std::size_t>(size, 1), kAlignment))
                     : take_pages(round_to_pages(size))) {}
    Buffer(Buffer&& other) noexcept : size_(other.size_), bytes_(std::exchange(other.bytes_, nullptr)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(size_, other.size_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Buffer() {
        if (bytes_ != nullptr && size_ < kLeastPaged) {
            ::operator delete(bytes_, kAlignment);
        } else if (bytes_ != nullptr) {
            return_pages(bytes_, round_to_pages(size_));
        }
    }

    std::size_t size() const { return size_; }
    std::uint8_t* bytes() const { return bytes_; }

private:
    std::size_t size_;
    std::uint8_t* bytes_;
};

class Buffers;

// A buffer that an array refers to. Python reads and writes its bytes through the buffer protocol.
struct BufferInUse {
    BufferInUse(Buffer used, std::shared_ptr<Buffers> keeper) : buffer(std::move(used)), pool(std::move(keeper)) {}
    BufferInUse(BufferInUse&&) = default;
    ~BufferInUse();

    Buffer buffer;
    std::shared_ptr<Buffers> pool;  // that it returns to; null if none keeps it
};

// The buffers that are kept, in use or idle.
class Buffers {
public:
    Buffers(std::size_t max_buffers, std::size_t max_bytes) : max_buffers_(max_buffers), max_bytes_(max_bytes) {}

    // Returns the idle buffer of that size that came back last, which caches may hold, or a new one, which is kept if
    // it fits beside those in use.
    static BufferInUse take(const std::shared_ptr<Buffers>& pool, std::size_t size) {
        const std::lock_guard<std::mutex> changing(pool->mutex_);
        std::vector<Buffer>& idle = pool->idle_;
        const auto found =
            std::find_if(idle.rbegin(), idle.rend(), [&](const Buffer& buffer) { return buffer.size() == size; });
        if (found != idle.rend()) {
            BufferInUse taken(std::move(*found), pool);
            idle.erase(std::next(found).base());
            return taken;
        }
        const bool is_kept = pool->make_room(size);
        idle.reserve(pool->num_kept_ + 1);
        BufferInUse taken(Buffer(size), is_kept ? pool : nullptr);
        pool->num_kept_ += is_kept ? 1 : 0;
        pool->kept_bytes_ += is_kept ? size : 0;
        return taken;
    }

    void put_back(Buffer buffer) {
        const std::lock_guard<std::mutex> changing(mutex_);
        idle_.push_back(std::move(buffer));  // `take` has reserved its place
    }

    std::size_t nbytes() const {
        const std::lock_guard<std::mutex> looking(mutex_);
        return kept_bytes_;
    }
    std::size_t max_bytes() const { return max_bytes_; }
    void set_max_bytes(std::size_t max_bytes) { max_bytes_ = max_bytes; }

private:
    // Releases idle buffers, the longest idle ones first, until `size` more bytes fit; returns whether they do.
    bool make_room(std::size_t size) {
        if (size > max_bytes_) {
            return false;
        }
        while (num_kept_ >= max_buffers_ || kept_bytes_ + size > max_bytes_) {
            if (idle_.empty()) {
                return false;
            }
            --num_kept_;
            kept_bytes_ -= idle_.front().size();
            idle_.erase(idle_.begin());
        }
        return true;
    }

    mutable std::mutex mutex_;
    std::size_t max_buffers_, max_bytes_;
    std::size_t num_kept_ = 0, kept_bytes_ = 0;  // in use or idle
    std::vector<Buffer> idle_;                   // the one that came back last is the last
};

BufferInUse::~BufferInUse() {
    if (pool != nullptr) {
        pool->put_back(std::move(buffer));
    }
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    const Buffer& buffer = nb::inst_ptr<BufferInUse>(self)->buffer;
    return PyBuffer_FillInfo(view, self, buffer.bytes(), static_cast<Py_ssize_t>(buffer.size()), 0, flags);
}

PyType_Slot kBufferSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)}, {0, nullptr}};

class OutputPool {
public:
    OutputPool(std::size_t max_buffers, std::size_t max_bytes)
        : buffers_(std::make_shared<Buffers>(max_buffers, max_bytes)) {}

    Buffers& buffers() const { return *buffers_; }

    // Returns an aligned array of that shape and dtype, with arbitrary contents.
    AnyArray take(const nb::typed<nb::tuple, int, nb::ellipsis>& shape, nb::handle dtype_like) {
        if (!dtype_like.is(dtype_)) {
            dtype_ = checked_dtype(dtype_like);
            item_bytes_ = nb::cast<std::size_t>(dtype_.attr("itemsize"));
        }
        std::size_t size = item_bytes_;
        for (const nb::handle side : shape) {
            size *= nb::cast<std::size_t>(side);
        }
        return array_over(shape, dtype_, nb::cast(Buffers::take(buffers_, size)));
    }

private:
    static nb::object checked_dtype(nb::handle dtype_like) {
        nb::object dtype = numpy_dtype(dtype_like);
        const nb::object kind = dtype.attr("kind");
        if (std::string_view("biuf").find(nb::cast<const char*>(kind)) == std::string_view::npos) {
            refuse("dtype", "does not fit: it must be of booleans or numbers");
        }
        return dtype;
    }

    std::shared_ptr<Buffers> buffers_;  // alive as long as an array of one that is kept
    nb::object dtype_;                  // of the last array: reading its attributes takes longer than all else
    std::size_t item_bytes_ = 0;
};

}  // namespace

void bind_output_pool(nb::module_& module) {
    nb::class_<BufferInUse>(module, "BufferInUse", nb::type_slots(kBufferSlots));
    // max_bytes: four batches of 1,024 windows of five Atari frames, for a loader.
    nb::class_<OutputPool>(module, "OutputPool")
        .def(nb::init<std::size_t, std::size_t>(), nb::arg("max_buffers") = 8,
             nb::arg("max_bytes") = std::size_t{144} << 20)
        .def_prop_ro("nbytes", [](const OutputPool& self) { return self.buffers().nbytes(); })
        .def_prop_rw(
            "max_bytes", [](const OutputPool& self) { return self.buffers().max_bytes(); },
            [](OutputPool& self, std::size_t max_bytes) { self.buffers().set_max_bytes(max_bytes); })
        .def("take", &OutputPool::take, nb::arg("shape"), nb::arg("dtype") = "uint8");
}

}  // namespace framestow
