//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/e2e/fields"
	"monopod/e2e/testimages"
	"monopod/node/localclient"
)

// atOnce is the number of pods that run concurrently. Each condition of one of them may take fieldPatience.
const atOnce = 20

var fieldPatience = 2 * patience

// TestEachEnforcedFieldHasAnEffect runs the table of e2e/fields: each row with all its fields, and without each of them. MONOPOD_E2E_FIELDS
// is a pattern for row names, for work on rows.
func TestEachEnforcedFieldHasAnEffect(t *testing.T) {
	f := newFieldTest(t)
	only := regexp.MustCompile(os.Getenv("MONOPOD_E2E_FIELDS"))
	all := fields.All()
	results := make([][]error, len(all))
	began, runs := time.Now(), 0
	var wait sync.WaitGroup
	for i := range all {
		if !only.MatchString(all[i].Name) {
			continue
		}
		list := all[i].Runs()
		results[i] = make([]error, len(list))
		runs += len(list)
		for j, run := range list {
			wait.Go(func() {
				f.free <- struct{}{}
				defer func() { <-f.free }()
				results[i][j] = f.run(run)
			})
		}
	}
	wait.Wait()
	f.look.stop()
	t.Logf("%d pods in %s", runs, time.Since(began).Round(time.Millisecond))
	for i := range all {
		if len(results[i]) > 0 {
			t.Run(all[i].Name, func(t *testing.T) {
				if err := errors.Join(results[i]...); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

type fieldTest struct {
	in    *instance
	words fields.Words
	free  chan struct{}
	look  *lookout
}

func newFieldTest(t *testing.T) *fieldTest {
	t.Helper()
	in := newInstance(t, manyProcessors)
	registry := testimages.Registry(t)
	testimages.Push(t, registry+"/busybox:1", testimages.Busybox(t, nil))
	in.prepareFields()
	// The users of pods with user namespaces need access to their root file systems there.
	if err := os.Chmod(filepath.Dir(in.state), 0o711); err != nil {
		t.Fatal(err)
	}
	in.start()
	f := &fieldTest{
		in: in, free: make(chan struct{}, atOnce), look: newLookout(in),
		words: fields.Words{"IMAGE": image, "REGISTRY": registry, "NODE": "e2e", "BIN": in.bin, "CDIKIND": cdiKind()},
	}
	t.Cleanup(f.look.stop)
	return f
}

// prepareFields creates what rows need on the machine: a shared mount, seccomp profiles, two devices.
func (in *instance) prepareFields() {
	in.t.Helper()
	dir, profiles, cdi := filepath.Join(in.dir, "fields"), filepath.Join(in.dir, "root", "seccomp"), "/var/run/cdi"
	for _, d := range []string{dir, profiles, cdi} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			in.t.Fatal(err)
		}
	}
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); err != nil {
		in.t.Fatal(err)
	}
	in.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if err := syscall.Mount("", dir, "", syscall.MS_SHARED, ""); err != nil {
		in.t.Fatal(err)
	}
	in.write(filepath.Join(profiles, "allow.json"), `{"defaultAction": "SCMP_ACT_ALLOW"}`)
	in.write(filepath.Join(profiles, "no-mkdir.json"),
		`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}`)
	devices := filepath.Join(cdi, fmt.Sprintf("monopod-e2e-%d.json", os.Getpid()))
	in.t.Cleanup(func() { _ = os.Remove(devices) })
	// The kind is unique: other tests may run at the same time, and a device that two specs define is ignored.
	in.write(devices, `{"cdiVersion": "0.6.0", "kind": "`+cdiKind()+`", "devices": [
		{"name": "one", "containerEdits": {"env": ["DEVICE=one"]}}, {"name": "two", "containerEdits": {"env": ["DEVICE=two"]}}]}`)
}

func cdiKind() string { return fmt.Sprintf("e2e-%d.monopod.dev/row", os.Getpid()) }

// run runs one pod until its check has a verdict.
func (f *fieldTest) run(r *fields.Run) (err error) {
	defer func() {
		if err != nil {
			what := "with all fields"
			if r.Without != "" {
				what = "without " + r.Without
			}
			err = fmt.Errorf("%s, %s: %w", r.Name, what, err)
		}
	}()
	o := &ongoing{f: f, run: r, deadline: time.Now().Add(fieldPatience), file: filepath.Join(f.in.manifests, r.Name+".yaml")}
	if err := o.begin(); err != nil {
		return err
	}
	defer o.end()
	if err := o.write(false); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.remove()) }()
	if err := o.act(); err != nil {
		return err
	}
	got := fields.Undecided
	s, err := o.until("the check is decided", func(s *fields.Seen) bool {
		if r.Row.Remove && s.Pod != nil {
			return false
		}
		got = r.Row.Check(s)
		return got != fields.Undecided
	})
	if err == nil && got != r.Want() {
		err = fmt.Errorf("it %s, want that it %s\n%s", got, r.Want(), o.describe(s))
	}
	return err
}

// ongoing is a run in progress.
type ongoing struct {
	f        *fieldTest
	run      *fields.Run
	words    fields.Words
	dir      string
	file     string
	servers  []*fields.Server
	before   *corev1.Pod
	acted    time.Time
	deadline time.Time
}

func (o *ongoing) begin() error {
	o.dir = filepath.Join(o.f.in.dir, "fields", o.run.Name)
	if err := errors.Join(os.Mkdir(o.dir, 0o777), os.Chmod(o.dir, 0o777)); err != nil {
		return err
	}
	for _, answer := range []func(int, *fields.Request) int{o.run.Row.Answer, nil} {
		s, err := fields.NewServer(o.f.in.t.Context(), answer)
		if err != nil {
			return err
		}
		o.servers = append(o.servers, s)
	}
	o.words = maps.Clone(o.f.words)
	maps.Copy(o.words, fields.Words{"DIR": o.dir, "PORT": o.servers[0].Port(), "PORT2": o.servers[1].Port(), "FREEPORT": fmt.Sprint(ports.Take(o.f.in.t))})
	return nil
}

func (o *ongoing) end() {
	for _, s := range o.servers {
		s.Close()
	}
}

func (o *ongoing) write(edited bool) error {
	text, err := o.run.Manifest(o.words, edited)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(o.file), "."+filepath.Base(o.file))
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, o.file)
}

// remove removes the pod and waits until it is gone.
func (o *ongoing) remove() error {
	if err := os.Remove(o.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	o.deadline = time.Now().Add(fieldPatience)
	_, err := o.until("the pod is gone", func(s *fields.Seen) bool { return s.Pod == nil })
	return err
}

// act performs the edit or removal of the row, once the pod is ready for it.
func (o *ongoing) act() error {
	r := o.run.Row
	if r.Edit == nil && !r.Remove {
		return nil
	}
	s, err := o.until("the pod is ready to be edited or removed", r.When)
	if err != nil {
		return err
	}
	o.before, o.acted = s.Pod, time.Now()
	o.deadline = o.acted.Add(fieldPatience)
	if r.Remove {
		return os.Remove(o.file)
	}
	return o.write(true)
}

// until checks a condition after each observation of the lookout.
func (o *ongoing) until(what string, is func(*fields.Seen) bool) (*fields.Seen, error) {
	for round := uint64(0); ; {
		pod, n, at, err := o.f.look.after(round, o.run.Name)
		if err != nil {
			return nil, err
		}
		round = n
		s := o.seen(pod)
		s.Now = at
		if is(s) {
			return s, nil
		}
		if time.Now().After(o.deadline) {
			return s, fmt.Errorf("not so in time: %s\n%s", what, o.describe(s))
		}
	}
}

func (o *ongoing) seen(pod *corev1.Pod) *fields.Seen {
	s := &fields.Seen{
		Pod: pod, Dir: o.dir, Name: o.run.Name, Requests: o.servers[0].Requests(), Requests2: o.servers[1].Requests(),
		FreePort: o.words["FREEPORT"], Before: o.before, ActedAt: o.acted,
	}
	s.Log = func(container string) string {
		if s.Pod == nil {
			return ""
		}
		out, _ := o.f.in.run("logs", "-n", s.Pod.Namespace, "-c", container, s.Pod.Name)
		return out
	}
	return s
}

// describe returns details that help to understand a failure.
func (o *ongoing) describe(s *fields.Seen) string {
	var b strings.Builder
	text, _ := o.run.Manifest(o.words, false)
	fmt.Fprintf(&b, "%s\n", text)
	for i, list := range [][]*fields.Request{s.Requests, s.Requests2} {
		for _, r := range list {
			fmt.Fprintf(&b, "request to port %d: %s %s %v to %s, %+v\n", i+1, r.Method, r.URI, r.At, r.To, r.Header)
		}
	}
	if s.Pod == nil {
		sources, _ := o.f.in.run("get", "sources")
		fmt.Fprintf(&b, "no such pod\n%s", sources)
		return b.String()
	}
	fmt.Fprintf(&b, "%s\n", brief(*s.Pod))
	for _, c := range append(s.Pod.Spec.InitContainers, s.Pod.Spec.Containers...) {
		fmt.Fprintf(&b, "log of %s: %s\n", c.Name, s.Log(c.Name))
	}
	return b.String()
}

// lookout watches all pods of the agent for all runs.
type lookout struct {
	mu   sync.Mutex
	cond *sync.Cond
	pods map[types.NamespacedName]*corev1.Pod
	// round counts the observations; at is the time of the last one.
	round uint64
	at    time.Time
	err   error
	end   context.CancelFunc
	wait  sync.WaitGroup
}

func newLookout(in *instance) *lookout {
	l := &lookout{pods: map[types.NamespacedName]*corev1.Pod{}}
	l.cond = sync.NewCond(&l.mu)
	ctx, end := context.WithCancel(in.t.Context())
	l.end = end
	l.wait.Go(func() {
		client := localclient.New(filepath.Join(in.state, "monopod.sock"))
		err := client.Watch(ctx, "", "", func(e localclient.PodEvent) error { l.see(e); return nil })
		l.look(func() { l.err = err })
	})
	l.wait.Go(func() { l.tick(ctx) })
	return l
}

func (l *lookout) see(e localclient.PodEvent) {
	l.look(func() {
		key := types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name}
		if e.Type == "DELETED" {
			delete(l.pods, key)
		} else {
			l.pods[key] = &e.Object
		}
	})
}

// tick repeats the checks that depend on data that the agent does not report: requests and files.
func (l *lookout) tick(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
		l.look(func() {})
	}
}

func (l *lookout) look(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.round++
	l.at = time.Now()
	l.cond.Broadcast()
}

// after waits for an observation after a round, and returns a pod by its label or name; nil if there is none.
func (l *lookout) after(round uint64, name string) (pod *corev1.Pod, now uint64, at time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.round <= round && l.err == nil {
		l.cond.Wait()
	}
	for _, p := range l.pods {
		if p.Labels["row"] == name || p.Name == name {
			pod = p
		}
	}
	return pod, l.round, l.at, l.err
}

func (l *lookout) stop() {
	l.end()
	l.wait.Wait()
}
