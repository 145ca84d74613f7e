// Package daemontest is test support: a fake runtime, fake images and manifests for tests of the daemon and of whole programs.
//
// It must not be imported by product code.
package daemontest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/config"
	"monopod/internal/daemon/imageservice"
	"monopod/internal/model"
	"monopod/internal/streams"
	"monopod/internal/tree"
	"monopod/manifests"
	"monopod/node/stats"
	"monopod/node/systemd"
	"monopod/runner"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/ctrd/image/gc"
	"monopod/runner/runtimetest"
)

// Patience is the timeout of conditions in tests, far longer than they should ever take.
const Patience = time.Minute

// FakeRuntime is the in-memory runtime with everything else that a daemon needs.
type FakeRuntime struct {
	*runtimetest.Fake
	*Pinned
	Store *FakeImages
	// Stuck makes Close hang.
	Stuck bool
	// RootDir is the root directory of all containers.
	RootDir string
	// Version is the version of an embedded containerd.
	Version string
}

// Images implements containers.Runtime.
func (f *FakeRuntime) Images() imageservice.Service { return f.Store.Images() }

// ReclaimContainers implements containers.Runtime and frees nothing.
func (f *FakeRuntime) ReclaimContainers(context.Context) (int64, error) { return 0, nil }

// Run implements containers.Runtime: it only waits for ctx.
func (f *FakeRuntime) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Preload implements containers.Runtime: it reports success and waits for ctx.
func (f *FakeRuntime) Preload(ctx context.Context, done func(error)) error {
	done(nil)
	<-ctx.Done()
	return nil
}

// FollowObjects implements containers.Runtime and does nothing.
func (f *FakeRuntime) FollowObjects(*manifests.Objects, func(manifests.Origin) bool) {}

// Places implements containers.Runtime: all pods have a cgroup that does not exist.
func (f *FakeRuntime) Places(ctx context.Context) ([]model.Place, error) {
	keys, err := f.List(ctx)
	var all []model.Place
	for _, key := range keys {
		all = append(all, model.Place{Key: key, Cgroup: "/no/such/cgroup"})
	}
	return all, err
}

// MeasureDisk implements containers.Runtime: pods use no disk space.
func (f *FakeRuntime) MeasureDisk(context.Context, manifests.Key) (runner.DiskSizes, error) {
	return runner.DiskSizes{}, nil
}

// Cleanup implements containers.Runtime: it fails while pods exist.
func (f *FakeRuntime) Cleanup(ctx context.Context) error {
	keys, err := f.List(ctx)
	if err == nil && len(keys) > 0 {
		err = errors.New("pods still exist")
	}
	return err
}

// ContainerdVersion implements containers.Runtime.
func (f *FakeRuntime) ContainerdVersion() string { return f.Version }

// Purge implements containers.Runtime and does nothing.
func (f *FakeRuntime) Purge(context.Context) error { return nil }

// Close implements containers.Runtime; see Stuck.
func (f *FakeRuntime) Close() error {
	if f.Stuck {
		select {}
	}
	return nil
}

// SyncBuffer is a buffer for concurrent reads and writes.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *SyncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns everything written so far.
func (s *SyncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// LoadIn loads the configuration of a directory.
func LoadIn(dir string) (*config.Loaded, error) {
	flags := config.AddFlags(pflag.NewFlagSet("run", pflag.ContinueOnError))
	flags.File = filepath.Join(dir, "config.yaml")
	return config.Load(flags, config.Environment{WorkDir: dir, Hostname: func() (string, error) { return "Edge-1.Example", nil }})
}

// PodYAML returns the manifest of a pod with one container per script, named a, b, ...
func PodYAML(name string, scripts ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\nspec:\n  containers:\n", name, name)
	for i, s := range scripts {
		fmt.Fprintf(&b, "  - {name: %c, image: example.com/app:1, command: [sh, -c, %q]}\n", 'a'+i, s)
	}
	return b.String()
}

// Root implements node.Files: RootDir is the root of all containers.
func (f *FakeRuntime) Root(context.Context, manifests.Key, string) (*os.File, tree.User, error) {
	root, err := os.Open(f.RootDir)
	return root, tree.User{UID: os.Getuid(), GID: os.Getgid(), Capabilities: ^uint64(0)}, err
}

// Stream implements stream.Runtime: a command describes what it does.
func (f *FakeRuntime) Stream(_ context.Context, key manifests.Key, _ string, command []string, s streams.Streams) (int, error) {
	in := ""
	if s.Stdin != nil {
		b, err := io.ReadAll(s.Stdin)
		if err != nil {
			return 0, err
		}
		in = string(b)
	}
	fmt.Fprintf(s.Stdout, "%s %q %s", key, command, in)
	fmt.Fprint(s.Stderr, "oops\n")
	if command[0] == "none" {
		return 0, errors.New("no such command")
	}
	return len(command), nil
}

// Attach implements stream.Runtime.
func (f *FakeRuntime) Attach(_ context.Context, key manifests.Key, _ string, s streams.Streams) error {
	_, err := fmt.Fprintf(s.Stdout, "output of %s, input %t", key, s.Stdin != nil)
	return err
}

// Dial implements stream.Runtime: one port is open and answers with its number.
func (f *FakeRuntime) Dial(_ context.Context, _ manifests.Key, port int) (net.Conn, error) {
	if port != 80 {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	go func() {
		_, _ = fmt.Fprintf(there, "port %d\n", port)
		_ = there.Close()
	}()
	return here, nil
}

// Evil is text that a container may write: each kind of character that terminals interpret, and forged lines.
const Evil = "a\x1b[2J\x1b]0;t\a\u009b31m\x7f\u202e\u2066\u200b\ufeff\u2028\nFORGED\r\nFORGED\rFORGED\t\v\fz"

// fill puts Evil into each string of a value, and one or two elements into each list.
func fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1e9, 0))))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1e9, 0)))
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(Evil)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(3)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Pointer:
		if depth > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if depth > 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 2, 2))
			for i := range 2 {
				fill(v.Index(i), depth-1)
			}
		}
	case reflect.Map:
		if depth > 0 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, depth-1)
			fill(value, depth-1)
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	}
}

// HostileTexts returns a T whose strings are all Evil.
func HostileTexts[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem(), 12)
	return v
}

// ActedOn returns the first character that a terminal interprets, or a forged line; empty if there is none.
func ActedOn(text string) string {
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			return fmt.Sprintf("%U at %d", r, i)
		}
	}
	if strings.HasPrefix(text, "FORGED") || strings.Contains(text, "\nFORGED") {
		return "a forged line"
	}
	return ""
}

// FakeImages are images in memory: a reference stands for the digest of the same name. Garbage collection works as in production, on a disk
// whose size is 100 bytes.
type FakeImages struct {
	// Before is called when a garbage collection begins; nil disables it.
	Before func()
	Mu     sync.Mutex
	// All are the existing images. Running are pulls in progress.
	All     []ctrd.ImageUse
	Running []model.Pull
	Space   gc.Disk
	Err     error
	Changes chan struct{}
	Want    atomic.Int64
	// Coming are pulls that wait until their channel is closed.
	Coming map[string]chan error
}

// NewFakeImages returns an empty image store on a half-full disk.
func NewFakeImages() *FakeImages {
	return &FakeImages{Changes: make(chan struct{}, 1), Space: gc.Disk{Capacity: 100, Available: 50}, Coming: map[string]chan error{}}
}

// Images implements containers.Runtime.
func (f *FakeImages) Images() imageservice.Service {
	if f == nil {
		return NewFakeImages()
	}
	return f
}

// List returns All.
func (f *FakeImages) List(context.Context) ([]ctrd.ImageUse, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return slices.Clone(f.All), f.Err
}

// Pulls returns the pulls in Running of one image, or of all if ref is empty.
func (f *FakeImages) Pulls(_ context.Context, ref string) ([]model.Pull, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var found []model.Pull
	for _, p := range f.Running {
		if ref == "" || p.Image == ref {
			found = append(found, p)
		}
	}
	return found, f.Err
}

// Pull waits for the channel of ref in Coming; without one it fails.
func (f *FakeImages) Pull(ctx context.Context, ref string, _ corev1.PullPolicy) (*image.Image, error) {
	f.Mu.Lock()
	wait := f.Coming[ref]
	f.Mu.Unlock()
	if wait == nil {
		return nil, &runner.StepError{Reason: runner.ReasonErrImagePull, Err: fmt.Errorf("pull image %q: no such image", ref)}
	}
	select {
	case err := <-wait:
		return &image.Image{Name: ref, Target: "sha256:" + ref}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Targets returns the references by digest.
func (f *FakeImages) Targets(_ context.Context, refs []string) (map[string][]string, error) {
	targets := map[string][]string{}
	for _, r := range refs {
		targets["sha256:"+r] = append(targets["sha256:"+r], r)
	}
	return targets, nil
}

// Collect removes images as the production policy decides.
func (f *FakeImages) Collect(ctx context.Context, c image.Collection) (out image.Collected, err error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Err != nil {
		return out, f.Err
	}
	if f.Before != nil {
		f.Before()
	}
	refs, digests, err := c.Needs()
	if err != nil {
		return out, err
	}
	needs := map[string]bool{}
	targets, _ := f.Targets(ctx, refs)
	for dig := range targets {
		needs[dig] = true
	}
	for _, dig := range digests {
		needs[dig] = true
	}
	var all []gc.Image
	for _, u := range f.All {
		all = append(all, gc.Image{Digest: u.Digest, Size: u.Own, FirstSeen: u.FirstSeen, LastUsed: u.LastUsed, InUse: len(u.Pods) > 0})
	}
	plan := c.Policy.Plan(time.Now(), all, f.Space, needs)
	if c.Bytes > 0 {
		plan = c.Policy.Reclaim(time.Now(), all, c.Bytes, needs)
	}
	for _, x := range plan.Remove {
		f.All = slices.DeleteFunc(f.All, func(u ctrd.ImageUse) bool { return u.Digest == x.Digest })
		f.Space.Available += x.Size
		out.Freed += x.Size
		out.Removed = append(out.Removed, x.Digest)
	}
	out.Short, out.Next, out.Disk = plan.Short, plan.Next, f.Space
	return out, nil
}

// Remove removes an image by its digest; without forced, only one that no pod uses.
func (f *FakeImages) Remove(_ context.Context, digest string, forced bool) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for i := range f.All {
		if f.All[i].Digest == digest && len(f.All[i].Pods) > 0 && !forced {
			return image.ErrNeeded
		}
	}
	f.All = slices.DeleteFunc(f.All, func(u ctrd.ImageUse) bool { return u.Digest == digest })
	return nil
}

// Disk returns the size and the free space of the disk.
func (f *FakeImages) Disk() (gc.Disk, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Space, f.Err
}

// Changed returns a channel that receives a value after each change.
func (f *FakeImages) Changed() <-chan struct{} { return f.Changes }

// Wanted returns Want and resets it.
func (f *FakeImages) Wanted() int64 { return f.Want.Swap(0) }

// Digests returns the digests of the existing images.
func (f *FakeImages) Digests() []string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var all []string
	for _, u := range f.All {
		all = append(all, u.Digest)
	}
	slices.Sort(all)
	return all
}

// PodOfImage is a manifest that lacks the name of its pod and its image.
const PodOfImage = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: c, image: %s}]\n"

// MountedCgroups finds the cgroup hierarchies once for all daemons of a test program: a machine with containers has many mounts.
var MountedCgroups = sync.OnceValues(stats.FindHierarchies)

// Pinned records the digests passed to SyncPins.
type Pinned struct {
	mu    sync.Mutex
	calls []string
	// gone and err are the next results.
	gone []string
	err  error
}

// SyncPins implements containers.Runtime.
func (p *Pinned) SyncPins(_ context.Context, digests []string) ([]string, error) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, strings.Join(digests, " "))
	return p.gone, p.err
}

// Calls returns the digests of each call of SyncPins, separated by spaces.
func (p *Pinned) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Notifications stores messages to systemd until a test reads them.
type Notifications struct {
	mu   sync.Mutex
	said []string
	more chan struct{}
}

// ServiceManager returns a notifier with that watchdog interval, and the messages that it sends.
func ServiceManager(t *testing.T, watchdog time.Duration) (*systemd.Notifier, *Notifications) {
	t.Helper()
	dir, err := os.MkdirTemp("", "sd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	h, over := &Notifications{more: make(chan struct{}, 1)}, make(chan struct{})
	go func() {
		defer close(over)
		for b := make([]byte, 1<<12); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			h.keep(string(b[:n]))
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-over })
	return &systemd.Notifier{Socket: path, Watchdog: watchdog}, h
}

// keep stores a message.
func (h *Notifications) keep(m string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.said, m) { // pings do not end
		h.said = append(h.said, m)
	}
	select {
	case h.more <- struct{}{}:
	default:
	}
}

// take removes and returns the first message with a prefix; other messages are kept for later calls, because the order in which a pod and
// the daemon become ready is not defined.
func (h *Notifications) take(prefix string) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.said, func(m string) bool { return strings.HasPrefix(m, prefix) })
	if i < 0 {
		return "", false
	}
	m := h.said[i]
	h.said = slices.Delete(h.said, i, i+1)
	return m, true
}

// Wait waits for a message with a prefix.
func (h *Notifications) Wait(t *testing.T, prefix string) string {
	t.Helper()
	for deadline := time.After(Patience); ; {
		if m, ok := h.take(prefix); ok {
			return m
		}
		select {
		case <-h.more:
		case <-deadline:
			h.mu.Lock()
			defer h.mu.Unlock()
			t.Fatalf("%q was not told, but %q", prefix, h.said)
		}
	}
}

// Answer sets the results of SyncPins.
func (p *Pinned) Answer(gone []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone, p.err = gone, err
}
