//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod/node/localapi"
)

// file writes a file for -f and returns its path.
func (in *instance) file(name, text string) string {
	in.t.Helper()
	path := filepath.Join(in.dir, name)
	in.write(path, text)
	return path
}

// does runs a client command that must succeed and returns its output.
func (in *instance) does(args ...string) string {
	in.t.Helper()
	out, err := in.run(args...)
	if err != nil {
		in.t.Fatal(err)
	}
	return out
}

// refuses runs a client command that must fail with a message.
func (in *instance) refuses(want string, args ...string) {
	in.t.Helper()
	if out, err := in.run(args...); err == nil || !strings.Contains(err.Error(), want) {
		in.t.Errorf("monopod %s: %q, %v; want %q", strings.Join(args, " "), out, err, want)
	}
}

func TestWhatIsAppliedRunsSurvivesAndIsDeleted(t *testing.T) {
	in := newInstance(t)
	in.start()
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: text}\ndata: {say: %s}\n---\n"
	pod := sleeper("pushed", "echo I say $SAY", `    env: [{name: SAY, valueFrom: {configMapKeyRef: {name: text, key: say}}}]`)
	path := in.file("set.yaml", fmt.Sprintf(config, "hello")+pod)
	if out := in.does("apply", "--wait", "-f", path); out != "configmap/text created\npod/pushed created\n" {
		t.Errorf("apply: %s", out)
	}
	in.logHas("pushed", "I say hello")
	first := in.ready("pushed")
	in.kill9()
	in.start()
	if again := in.ready("pushed"); again.UID != first.UID || containerID(again, "c") != containerID(first, "c") {
		t.Errorf("another pod after kill -9: %s", brief(again))
	}
	// When apply --wait returns, the edited container runs and the old one is gone.
	edited := strings.Replace(pod, "echo I say $SAY", "echo I shout $SAY", 1)
	if out := in.does("apply", "--wait", "-f", in.file("set.yaml", fmt.Sprintf(config, "hello")+edited)); out != "configmap/text unchanged\npod/pushed configured\n" {
		t.Errorf("apply: %s", out)
	}
	in.logHas("pushed", "I shout hello")
	in.refuses("set.yaml:", "apply", "-f", in.file("set.yaml", strings.Replace(pod, "image:", "imag:", 1)))
	in.does("wait", "--for=condition=Ready", "pushed")
	if out := in.does("delete", "-f", in.file("set.yaml", fmt.Sprintf(config, "hello")+pod)); out != "configmap/text deleted\npod/pushed deleted\n" {
		t.Errorf("delete: %s", out)
	}
	in.refuses(`pod "pushed" not found`, "get", "pod", "pushed") // delete has waited
	in.does("wait", "--for=delete", "pushed")
	in.refuses("exit status 2", "wait", "--timeout=50ms", "pushed")
}

// The container must not be affected when its manifest moves between sources.
func TestAPodMovesFromSourceToSourceWithoutARestart(t *testing.T) {
	in := newInstance(t)
	in.start()
	text := sleeper("mover", "echo started")
	in.put("mover", text)
	before := in.ready("mover")
	pid := in.pidOf("mover")
	from := func(want string) {
		t.Helper()
		in.pod("mover", "is of "+want, func(p corev1.Pod) bool { return strings.Contains(p.Annotations["monopod.dev/source"], want) })
	}
	manifest := filepath.Join(in.manifests, "mover.yaml")
	path := in.file("mover.yaml", text)
	for range 3 {
		in.refuses("mover.yaml:1; remove it there", "delete", "pod", "mover")
		in.refuses("which cannot be overridden", "apply", "-f", in.file("other.yaml", strings.Replace(text, "echo started", "echo other", 1)))
		in.does("apply", "-f", path) // there in the second before it is gone from the first
		in.drop("mover")
		from("/root/applied/pod.default.mover.yaml")
		in.put("mover", text)
		from(manifest)
		in.does("delete", "pod", "mover")
	}
	after := in.ready("mover")
	if now := in.pidOf("mover"); now != pid || after.UID != before.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("process %d is now %d: %s", pid, now, brief(after))
	}
}

// A pod and a Deployment move from a file to a URL to applied objects and back, each time in a different notation.
func TestPodsMoveOverAllSourcesThoughEachWritesThemDifferently(t *testing.T) {
	site := newSite(t)
	in := site.asking()
	in.start()
	plain := sleeper("mover", "echo started") + "---\n" + deploymentOf("many")
	var asJSON, sorted string
	for doc := range strings.SplitSeq(plain, "---\n") {
		b, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		asJSON += string(b) + "\n"
		if b, err = yaml.JSONToYAML(b); err != nil {
			t.Fatal(err)
		}
		sorted += "---\n# the same\n" + string(b)
	}
	in.put("set", plain)
	names := []string{"mover", "many-0"}
	pids := map[string]int{}
	for _, name := range names {
		in.ready(name)
		pids[name] = in.pidOf(name)
	}
	from := func(want string) {
		t.Helper()
		for _, name := range names {
			in.pod(name, "is of "+want, func(p corev1.Pod) bool { return strings.Contains(p.Annotations["monopod.dev/source"], want) })
		}
	}
	stored := in.file("set.yaml", sorted)
	for range 2 {
		from("set.yaml")
		site.says(asJSON)
		in.reports("is already defined in")
		in.drop("set")
		from("https://" + site.address)
		in.refuses("remove it there", "delete", "pod", "mover")
		in.does("apply", "-f", stored)
		site.says("# nothing\n")
		from("/root/applied/")
		in.put("set", plain)
		from("manifests/set.yaml")
		in.does("delete", "-f", stored)
	}
	for _, name := range names {
		if p := in.ready(name); in.pidOf(name) != pids[name] || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("process %d is now %d: %s", pids[name], in.pidOf(name), brief(p))
		}
	}
}

// slowToEnd records each of its starts in a file on the host, and takes a while to stop.
func slowToEnd(name, dir string, version int, ends string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - name: c
    image: %s
    command: [sh, -c, "trap 'echo end %d >> /notes/starts; sleep %s; exit 0' TERM; echo start %d >> /notes/starts; while :; do sleep 3600 & wait $!; done"]
    volumeMounts: [{name: notes, mountPath: /notes}]
  volumes: [{name: notes, hostPath: {path: %s}}]
`, name, image, version, ends, version, dir)
}

// shells returns the processes of the instance that run a script containing mark, except those they have just forked.
func (in *instance) shells(mark string) []int {
	table := in.table()
	runs := func(pid int) bool {
		p := table[pid]
		return p.mine && strings.HasPrefix(p.cmdline, "sh ") && strings.Contains(p.cmdline, mark)
	}
	var found []int
	for pid, p := range table {
		if runs(pid) && !runs(p.parent) {
			found = append(found, pid)
		}
	}
	return found
}

// wants returns an error unless the desired pod, as the agent has read it, contains the text.
func (in *instance) wants(name, text string) error {
	out, err := in.run("history", "pod", name, "-o", "json")
	h := &localapi.History{}
	if err == nil {
		err = json.Unmarshal([]byte(out), h)
	}
	if err != nil {
		return err
	}
	if r := h.Revision(h.Wanted); r == nil || !strings.Contains(string(r.Manifest), text) {
		return fmt.Errorf("it is %+v", r)
	}
	return nil
}

// field-notes 4 B11, with a shorter pause: the manifest at the time when the old container has exited decides.
func TestThreeHundredRewritesDuringTheTerminationEndInTheLastSpec(t *testing.T) {
	apply := func(in *instance, text string) { in.does("apply", "-f", in.file("slow.yaml", text)) }
	write := func(in *instance, text string) { in.put("slow", text) }
	for name, tt := range map[string]struct {
		first, rewrite func(in *instance, text string)
		rewrites       int
	}{
		"in the directory": {write, write, 300},
		"removed and written anew": {write, func(in *instance, text string) {
			in.drop("slow")
			in.put("slow", text)
		}, 300},
		"applied": {apply, apply, 50}, // each is a process
	} {
		t.Run(name, func(t *testing.T) {
			in := newInstance(t)
			in.start()
			notes := t.TempDir()
			starts := func() string {
				b, err := os.ReadFile(filepath.Join(notes, "starts"))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				return strings.TrimSpace(string(b))
			}
			t.Cleanup(func() { // whatever failed, its 300 s need not be waited for
				for _, pid := range in.shells("/notes/starts") {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			tt.first(in, slowToEnd("slow", notes, 0, "300"))
			in.ready("slow")
			in.eventually("it has noted its start", func() error {
				if got := starts(); got != "start 0" {
					return fmt.Errorf("notes: %s", got)
				}
				return nil
			})
			found := in.shells("start 0 ")
			if len(found) != 1 {
				t.Fatalf("processes %v run", found)
			}
			old := found[0]
			tt.rewrite(in, slowToEnd("slow", notes, 1, "0"))
			in.eventually("the old one ends", func() error {
				if got := starts(); !strings.HasSuffix(got, "end 0") {
					return fmt.Errorf("notes: %s", got)
				}
				return nil
			})
			for i := 2; i <= tt.rewrites; i++ {
				tt.rewrite(in, slowToEnd("slow", notes, i, "0"))
			}
			last := fmt.Sprintf("start %d", tt.rewrites)
			in.eventually("the last spec is known", func() error { return in.wants("slow", last+" ") })
			if !in.table()[old].mine {
				t.Fatal("the old one ended before the rewrites did")
			}
			if got := starts(); got != "start 0\nend 0" {
				t.Errorf("something started beside the old one: %s", got)
			}
			_ = syscall.Kill(old, syscall.SIGKILL) // its 300 s need not be waited for
			in.eventually("the last spec runs", func() error {
				if got := starts(); !strings.HasSuffix(got, last) {
					return fmt.Errorf("notes: %s", got)
				}
				return nil
			})
			in.pod("slow", "is ready as it was written last", func(p corev1.Pod) bool {
				return isReady(p) && strings.Contains(p.Spec.Containers[0].Command[2], last+" ")
			})
			if got := starts(); got != "start 0\nend 0\n"+last {
				t.Errorf("not once each: %s", got)
			}
			if n := in.shells("/notes/starts"); len(n) != 1 {
				t.Errorf("processes %v run", n)
			}
		})
	}
}

// The agent is killed at a random moment while it applies many objects: all of them are in the state before or after the apply, and in the
// state after it if the client got a success.
func TestKillNineDuringAnApplyLeavesAllOldOrAllNew(t *testing.T) {
	in := newInstance(t)
	in.start()
	const objects, rounds = 12, 18
	set := func(version int) string {
		var b strings.Builder
		for i := range objects {
			fmt.Fprintf(&b, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: part-%d}\ndata: {version: \"%d\"}\n---\n", i, version)
		}
		b.WriteString(sleeper("pushed", fmt.Sprintf(": version %d.", version)))
		return b.String()
	}
	stored := filepath.Join(in.dir, "root", "applied")
	versions := func() []string {
		t.Helper()
		paths, err := filepath.Glob(filepath.Join(stored, "*"))
		if err != nil || len(paths) != objects+1 {
			t.Fatalf("%d files are stored: %v %v", len(paths), paths, err)
		}
		var found []string
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(b), "version")
			found = append(found, strings.Trim(strings.FieldsFunc(rest, func(r rune) bool { return r == '\n' || r == '.' || r == ';' })[0], `: "'`))
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	began := time.Now()
	in.does("apply", "-f", in.file("set.yaml", set(0)))
	took := time.Since(began)
	outcomes := map[string]int{}
	current := 0
	for i := 1; i <= rounds; i++ {
		path := in.file("set.yaml", set(i))
		before := lastChange(stored)
		done := make(chan error, 1)
		go func() {
			_, err := in.run("apply", "-f", path)
			done <- err
		}()
		switch i % 3 { // the time in which it writes is short, and that after its decision even more so
		case 0:
			time.Sleep(rand.N(3 * took)) // any moment will do
		case 1:
			untilEither(done, func() bool { return !lastChange(stored).Equal(before) })
			time.Sleep(rand.N(20 * time.Millisecond))
		default:
			untilEither(done, func() bool { return !lastChange(filepath.Join(stored, ".change")).IsZero() })
		}
		in.kill9()
		err := <-done
		in.start()
		got := versions()
		switch {
		case len(got) != 1:
			t.Errorf("round %d: versions %v are stored side by side", i, got)
		case got[0] == fmt.Sprint(i):
			current = i
			outcomes["new"]++
		case got[0] == fmt.Sprint(current) && err != nil:
			outcomes["old"]++
		default:
			t.Errorf("round %d: version %s is stored after %v, before it was %d", i, got[0], err, current)
		}
		if left, _ := filepath.Glob(filepath.Join(stored, ".[a-z]*")); len(left) > 0 {
			t.Errorf("round %d: left behind: %v", i, left)
		}
	}
	t.Logf("an apply took %v; outcomes %v", took, outcomes)
	in.pod("pushed", "is as it is stored", func(p corev1.Pod) bool {
		return isReady(p) && strings.Contains(p.Spec.Containers[0].Command[2], fmt.Sprintf("version %d.", current))
	})
}

// untilEither returns when one of both has happened. It does not sleep: what it waits for may last less than a millisecond.
func untilEither(done <-chan error, happened func() bool) {
	for len(done) == 0 && !happened() {
		runtime.Gosched()
	}
}

// lastChange is when a file, or the list of files of a directory, was changed; zero if it does not exist.
func lastChange(dir string) time.Time {
	if info, err := os.Stat(dir); err == nil {
		return info.ModTime()
	}
	return time.Time{}
}

// fillUp fills a disk completely. It continues for a while, because the agent may free space when it replaces a file.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block, full := make([]byte, 4096), time.Time{}
	for deadline := time.Now().Add(patience); ; {
		switch _, err := f.Write(block); {
		case time.Now().After(deadline):
			t.Fatal("the disk does not stay full")
		case err == nil:
			full = time.Time{}
		case full.IsZero():
			full = time.Now()
		case time.Since(full) > time.Second:
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func TestAnApplyOnAFullDiskIsRefusedAndWhatRunsRunsOn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
	root, err := os.MkdirTemp("/run", "monopod-e2e-root-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the instance has ended
		if err := syscall.Unmount(root, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
		_ = os.Remove(root)
	})
	if err := syscall.Mount("monopod-e2e", root, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	in := newInstance(t)
	conf, err := os.ReadFile(in.config)
	if err != nil {
		t.Fatal(err)
	}
	in.write(in.config, strings.Replace(string(conf), "rootDirectory: "+filepath.Join(in.dir, "root"), "rootDirectory: "+root, 1))
	in.start()
	in.does("apply", "--wait", "-f", in.file("one.yaml", sleeper("one", "echo v1")))
	before, pid := in.ready("one"), in.pidOf("one")
	fill := filepath.Join(root, "fill")
	fillUp(t, fill)
	both := in.file("both.yaml", strings.Replace(sleeper("one", "echo v2"), "kind: Pod", "kind: Pod # another", 1)+"---\n"+sleeper("two", "echo"))
	for range 3 {
		in.refuses("no space left on device; nothing was changed", "apply", "-f", both)
	}
	stored, err := filepath.Glob(filepath.Join(root, "applied", "*"))
	hidden, _ := filepath.Glob(filepath.Join(root, "applied", ".[a-z]*"))
	if err != nil || len(stored) != 1 || len(hidden) > 0 {
		t.Errorf("stored: %v %v %v", stored, hidden, err)
	}
	after := in.ready("one")
	if now := in.pidOf("one"); now != pid || after.UID != before.UID {
		t.Errorf("process %d is now %d", pid, now)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	in.does("apply", "--wait", "-f", both)
	in.logHas("one", "v2")
	in.does("delete", "pod", "one", "two")
}
