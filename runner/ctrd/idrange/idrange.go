// Package idrange assigns ranges of user and group ids to the sandboxes of pods with a user namespace. It must not store them; the
// records of the sandboxes do.
package idrange

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
	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec"
)

// Wanted reports whether a pod has a user namespace of its own.
func Wanted(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Ranges holds the id range of each sandbox. It is rebuilt from the records of the sandboxes.
type Ranges struct {
	mu sync.Mutex
	// taken maps a sandbox to its first id.
	taken map[string]uint32
}

// Keep stores the range of a sandbox.
func (r *Ranges) Keep(sandbox string, first uint32) {
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

// Take assigns a range to a sandbox that overlaps no other and none that belongs to users of the host.
func (r *Ranges) Take(sandbox string, foreign []idRange) (uint32, error) {
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
		return 0, errors.New("user namespace: no free range of user ids")
	}
	r.taken[sandbox] = first
	return first, nil
}

// Release frees the range of a sandbox.
func (r *Ranges) Release(sandbox string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, sandbox)
}

// idRange is a range of user or group ids.
type idRange struct{ first, size uint64 }

// freeRange returns the lowest free block of ids. Blocks start at multiples of their size, as with the kubelet; the first belongs
// to the host.
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

// ForeignRanges returns the ranges that /etc/subuid and /etc/subgid assign to users of the host.
func ForeignRanges() []idRange {
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

// SnapshotLabels returns the labels that make the snapshotter map the ids of a root file system; none without a user namespace.
func SnapshotLabels(first uint32) map[string]string {
	if first == 0 {
		return nil
	}
	m := fmt.Sprintf("0:%d:%d", first, spec.UserIDs)
	return map[string]string{snapshots.LabelSnapshotUIDMapping: m, snapshots.LabelSnapshotGIDMapping: m}
}
