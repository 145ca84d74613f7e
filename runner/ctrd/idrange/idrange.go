// Package idrange assigns ranges of user and group ids to the sandboxes of pods that have a user namespace. It keeps them in memory only; the
// records of the sandboxes have them.
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

// Wanted says that a pod has a user namespace of its own.
func Wanted(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Ranges knows which ids of the machine belong to which sandbox. It is rebuilt from the labels of the sandboxes.
type Ranges struct {
	mu sync.Mutex
	// taken maps a sandbox to the first of its ids.
	taken map[string]uint32
}

// Keep notes a range that a sandbox has.
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

// Take gives a sandbox a range that overlaps with no other, and with none of those that belong to users of the machine.
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
		return 0, errors.New("user namespace: all ranges of user ids are taken")
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

// ForeignRanges are what /etc/subuid and /etc/subgid give to users of the machine, for their own containers.
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

// SnapshotLabels tell the snapshotter whose ids a root file system has; none for those of the machine.
func SnapshotLabels(first uint32) map[string]string {
	if first == 0 {
		return nil
	}
	m := fmt.Sprintf("0:%d:%d", first, spec.UserIDs)
	return map[string]string{snapshots.LabelSnapshotUIDMapping: m, snapshots.LabelSnapshotGIDMapping: m}
}
