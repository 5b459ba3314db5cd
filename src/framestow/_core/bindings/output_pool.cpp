// Binding of OutputPool: the buffers that batches are unpacked into.
//
// New memory for each batch costs more than unpacking, because the operating system zeroes every page. An array of the
// pool refers to its buffer through a capsule. All its views do too: views of views, torch.from_numpy, memoryviews and
// DLPack. When the last of them goes, the capsule gives the buffer back, in any thread.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "../pages.hpp"
#include "arguments.hpp"
#include "parts.hpp"

namespace framestow {
namespace {

constexpr std::align_val_t kAlignment{64};                 // XLA requires it of memory that it uses without a copy
constexpr std::size_t kLeastPaged = std::size_t{1} << 20;  // buffers of so many bytes have pages of their own
constexpr std::size_t kMaxAxes = 32;

// Memory with arbitrary contents.
class Buffer {
public:
    explicit Buffer(std::size_t size)
        : size_(size),
          bytes_(size < kLeastPaged
                     ? static_cast<std::uint8_t*>(::operator new(std::max<std::size_t>(size, 1), kAlignment))
                     : take_pages(round_to_pages(size))) {}
    Buffer(Buffer&& other) noexcept : size_(other.size_), bytes_(std::exchange(other.bytes_, nullptr)) {}
    Buffer& operator=(Buffer&&) = delete;
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

// The buffers that are kept, lent or idle.
class Buffers {
public:
    Buffers(std::size_t max_buffers, std::size_t max_bytes) : max_buffers_(max_buffers), max_bytes_(max_bytes) {}

    struct Lent {
        std::shared_ptr<Buffers> pool;
        Buffer buffer;
        bool is_kept;

        ~Lent() {
            if (is_kept) {
                const std::lock_guard<std::mutex> changing(pool->mutex_);
                pool->idle_.push_back(std::move(buffer));
            }
        }
    };

    // Returns the idle buffer of that size that came back last, which caches may hold, or a new one, which is kept if
    // it fits beside those that are lent.
    static std::unique_ptr<Lent> lend(const std::shared_ptr<Buffers>& pool, std::size_t size) {
        const std::lock_guard<std::mutex> changing(pool->mutex_);
        const auto found = std::find_if(pool->idle_.rbegin(), pool->idle_.rend(),
                                        [&](const Buffer& buffer) { return buffer.size() == size; });
        if (found != pool->idle_.rend()) {
            std::unique_ptr<Lent> lent(new Lent{pool, std::move(*found), true});
            pool->idle_.erase(std::next(found).base());
            return lent;
        }
        const bool is_kept = pool->make_room(size);
        std::unique_ptr<Lent> lent(new Lent{pool, Buffer(size), is_kept});
        pool->num_kept_ += is_kept ? 1 : 0;
        pool->kept_bytes_ += is_kept ? size : 0;
        return lent;
    }

    std::size_t nbytes() const {
        const std::lock_guard<std::mutex> looking(mutex_);
        return kept_bytes_;
    }
    std::size_t max_bytes() const { return max_bytes_; }
    void set_max_bytes(std::size_t max_bytes) { max_bytes_ = max_bytes; }

private:
    // Drops idle buffers, those that are idle for longest first, until `size` more bytes fit; returns whether they do.
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
            idle_.pop_front();
        }
        return true;
    }

    mutable std::mutex mutex_;
    std::size_t max_buffers_, max_bytes_;
    std::size_t num_kept_ = 0, kept_bytes_ = 0;  // lent or idle
    std::list<Buffer> idle_;
};

class OutputPool {
public:
    OutputPool(std::size_t max_buffers, std::size_t max_bytes)
        : buffers_(std::make_shared<Buffers>(max_buffers, max_bytes)) {}

    Buffers& buffers() const { return *buffers_; }

    // Returns an aligned array of that shape and dtype, with arbitrary contents.
    AnyArray take(const nb::typed<nb::tuple, int, nb::ellipsis>& shape, nb::handle dtype_like) const {
        const nb::object dtype = numpy_dtype(dtype_like);
        const nb::object kind_text = dtype.attr("kind");
        const std::string kind = nb::cast<const char*>(kind_text);
        const auto item_bytes = nb::cast<std::size_t>(dtype.attr("itemsize"));
        std::array<std::size_t, kMaxAxes> sides{};
        if (shape.size() > kMaxAxes || std::string("biuf").find(kind) == std::string::npos) {
            refuse("shape and dtype", "do not fit: they must have at most 32 axes, and booleans or numbers");
        }
        std::size_t size = item_bytes;
        for (std::size_t axis = 0; axis < shape.size(); ++axis) {
            sides[axis] = nb::cast<std::size_t>(shape[axis]);
            size *= sides[axis];
        }
        std::unique_ptr<Buffers::Lent> lent = Buffers::lend(buffers_, size);
        std::uint8_t* const bytes = lent->buffer.bytes();
        const nb::capsule owner(lent.release(),
                                [](void* owned) noexcept { delete static_cast<Buffers::Lent*>(owned); });
        const auto code = kind == "u"   ? nb::dlpack::dtype_code::UInt
                          : kind == "i" ? nb::dlpack::dtype_code::Int
                          : kind == "f" ? nb::dlpack::dtype_code::Float
                                        : nb::dlpack::dtype_code::Bool;
        const nb::dlpack::dtype of_items{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * item_bytes), 1};
        const nb::ndarray<nb::numpy> array(bytes, shape.size(), sides.data(), owner, nullptr, of_items);
        return nb::steal<AnyArray>(nb::cast(array).release());
    }

private:
    std::shared_ptr<Buffers> buffers_;  // alive as long as an array is
};

}  // namespace

void bind_output_pool(nb::module_& module) {
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
