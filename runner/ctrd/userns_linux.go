package ctrd

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/ctrd/embed"
	"monopod/runner/spec"
)

// ownUsers says that a pod has a user namespace of its own.
func ownUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// idRanges knows which ids of the machine belong to which sandbox. It is rebuilt from the labels of the sandboxes.
type idRanges struct {
	mu sync.Mutex
	// taken maps a sandbox to the first of its ids.
	taken map[string]uint32
}

// keep notes a range that a sandbox has.
func (r *idRanges) keep(sandbox string, first uint32) {
	if first == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[string]uint32{}
	}
	r.taken[sandbox] = first
}

// take gives a sandbox a range that overlaps with no other, and with none of those that belong to users of the machine.
func (r *idRanges) take(sandbox string, foreign []idRange) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[string]uint32{}
	}
	used := map[uint32]bool{}
	for _, first := range r.taken {
		used[first] = true
	}
	first, ok := freeRange(used, foreign)
	if !ok {
		return 0, errors.New("user namespace: all ranges of user ids are taken")
	}
	r.taken[sandbox] = first
	return first, nil
}

func (r *idRanges) release(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, sandbox)
}

// idRange is a range of user or group ids.
type idRange struct{ first, size uint64 }

// freeRange returns the lowest free block of ids. Blocks begin at multiples of their size, as kubelet's; the first is the
// machine's own.
func freeRange(used map[uint32]bool, foreign []idRange) (uint32, bool) {
	for first := uint64(spec.UserIDs); first+spec.UserIDs <= math.MaxInt32; first += spec.UserIDs {
		if !used[uint32(first)] && !overlaps(first, foreign) {
			return uint32(first), true
		}
	}
	return 0, false
}

func overlaps(first uint64, foreign []idRange) bool {
	for _, f := range foreign {
		if first < f.first+f.size && f.first < first+spec.UserIDs {
			return true
		}
	}
	return false
}

// foreignRanges are what /etc/subuid and /etc/subgid give to users of the machine, for their own containers.
func foreignRanges() []idRange {
	var all []idRange
	for _, name := range []string{"/etc/subuid", "/etc/subgid"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		all = append(all, parseSubIDs(string(b))...)
	}
	return all
}

// parseSubIDs reads lines like "alice:100000:65536".
func parseSubIDs(text string) []idRange {
	var all []idRange
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		f := strings.Split(strings.TrimSpace(sc.Text()), ":")
		if len(f) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(f[1], 10, 32)
		size, err2 := strconv.ParseUint(f[2], 10, 32)
		if err1 == nil && err2 == nil {
			all = append(all, idRange{first, size})
		}
	}
	return all
}

// noUserNamespace is how a kubelet begins to say that a pod cannot have one.
const noUserNamespace = "can't set `spec.hostUsers: false`"

// checkUserNamespaces says whether kernel and snapshotter can run pods in user namespaces.
func (r *Runtime) checkUserNamespaces() error {
	if r.cfg.Snapshotter != embed.Overlayfs {
		return fmt.Errorf("%s, snapshotter %s cannot map ids", noUserNamespace, r.cfg.Snapshotter)
	}
	if ok, err := overlayutils.SupportsIDMappedMounts(); err != nil || !ok {
		return errors.Join(fmt.Errorf("%s, the kernel has no id-mapped overlays", noUserNamespace), err)
	}
	return nil
}

// mapLabels tell the snapshotter whose ids a root file system has; none for those of the machine.
func mapLabels(first uint32) map[string]string {
	if first == 0 {
		return nil
	}
	m := fmt.Sprintf("0:%d:%d", first, spec.UserIDs)
	return map[string]string{snapshots.LabelSnapshotUIDMapping: m, snapshots.LabelSnapshotGIDMapping: m}
}
