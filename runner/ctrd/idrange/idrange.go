// Package idrange assigns ranges of user and group ids to the sandboxes of pods with a user namespace. Records of the sandboxes store them; a
// directory that all monopods of the machine share has one file for each, so that they know each other's.
package idrange

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/snapshots"
	corev1 "k8s.io/api/core/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

// Wanted reports whether a pod has a user namespace of its own.
func Wanted(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// Ranges holds the id range of each sandbox. It is rebuilt from the records of the sandboxes.
type Ranges struct {
	// Claims is the shared directory; the zero value claims nothing.
	Claims Claims

	mu sync.Mutex
	// taken maps a sandbox to its first id.
	taken map[string]uint32
}

// Keep stores the ranges of sandboxes, by sandbox, and claims them together. An error means that other monopods may assign them until the
// next change.
func (r *Ranges) Keep(first map[string]uint32) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken == nil {
		r.taken = map[string]uint32{}
	}
	before := maps.Clone(r.taken)
	for sandbox, id := range first {
		if id > 0 {
			r.taken[sandbox] = id
		}
	}
	if maps.Equal(before, r.taken) {
		return nil
	}
	return r.claimLocked()
}

// claimLocked tells other monopods of the ranges.
func (r *Ranges) claimLocked() error {
	_, unlock, err := r.Claims.others()
	if err != nil {
		return err
	}
	defer unlock()
	return r.Claims.write(r.taken)
}

// Take assigns a range to a sandbox that overlaps no other, also of other monopods, and none that belongs to users of the host.
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
	others, unlock, err := r.Claims.others()
	if err != nil {
		return 0, err
	}
	defer unlock()
	first, ok := freeRange(used, slices.Concat(foreign, others))
	if !ok {
		return 0, cause.Wrap(errors.New("user namespace: no free range of user ids"), cause.Cause{Kind: cause.Sandbox, Fault: cause.UserNamespace})
	}
	r.taken[sandbox] = first
	if err := r.Claims.write(r.taken); err != nil {
		delete(r.taken, sandbox)
		return 0, err
	}
	return first, nil
}

// Release frees the range of a sandbox. An error means that other monopods do not know until the next change.
func (r *Ranges) Release(sandbox string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.taken[sandbox]; !ok {
		return nil
	}
	delete(r.taken, sandbox)
	return r.claimLocked()
}

// idRange is a range of user or group ids.
type idRange struct{ first, size uint64 }

// freeRange returns the lowest free block of ids. Blocks start at multiples of their size, as with the kubelet; the first belongs
// to the host.
func freeRange(used map[uint32]bool, foreign []idRange) (uint32, bool) {
	for first := uint64(manifests.UserIDs); first+manifests.UserIDs <= math.MaxInt32; first += manifests.UserIDs {
		if !used[uint32(first)] && !overlaps(first, foreign) {
			return uint32(first), true
		}
	}
	return 0, false
}

func overlaps(first uint64, foreign []idRange) bool {
	for _, f := range foreign {
		if first < f.first+f.size && f.first < first+manifests.UserIDs {
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
	m := fmt.Sprintf("0:%d:%d", first, manifests.UserIDs)
	return map[string]string{snapshots.LabelSnapshotUIDMapping: m, snapshots.LabelSnapshotGIDMapping: m}
}
