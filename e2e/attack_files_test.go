//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/atomicfile/damagetest"
)

// victim is a pod with as many kinds of files as one pod can have, and its objects. PORT stands for its port on the node.
const victim = `apiVersion: v1
kind: ConfigMap
metadata: {name: victim}
data: {key: value}
---
apiVersion: v1
kind: Secret
metadata: {name: victim}
stringData: {key: value}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: victim}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: victim}
spec:
  terminationGracePeriodSeconds: 2
  shareProcessNamespace: true
  securityContext: {fsGroup: 1000}
  volumes:
  - {name: config, configMap: {name: victim}}
  - {name: secret, secret: {secretName: victim}}
  - {name: claim, persistentVolumeClaim: {claimName: victim}}
  - {name: empty, emptyDir: {}}
  containers:
  - name: c
    image: monopod.test/busybox:1
    command: [sh, -c, "trap 'exit 0' TERM; echo output; echo message >/dev/termination-log; while :; do sleep 3600 & wait $!; done"]
    env: [{name: SECRET, valueFrom: {secretKeyRef: {name: victim, key: key}}}]
    ports: [{containerPort: 80, hostPort: PORT}]
    volumeMounts: [{name: config, mountPath: /config}, {name: secret, mountPath: /secret}, {name: claim, mountPath: /claim}, {name: empty, mountPath: /empty}]
`

// placeholders replace the variable parts of paths in patterns.
var placeholders = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9a-f]{64}`), "{id}"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "{uid}"},
	{regexp.MustCompile(`/networks/monopod/\d.*`), "/networks/monopod/{ip}"},
	{regexp.MustCompile(`/\.\.\d{4}_[^/]*/`), "/{time}/"},
	{regexp.MustCompile(`default_[a-z-]+_`), "default_{pod}_"},
	{regexp.MustCompile(`containers/[a-z-]+_default`), "containers/{pod}_default"},
	{regexp.MustCompile(`revisions/default/[^/]+`), "revisions/default/{pod}"},
	{regexp.MustCompile(`containers/c/[0-9a-f]+$`), "containers/c/{message}"},
	{regexp.MustCompile(`/\d+\.log`), "/{n}.log"},
	{regexp.MustCompile(`/\.(state|tmp|exit)-\d+$`), "/{temporary}.damaged"},
	{regexp.MustCompile(`\.(damaged|broken|stray)(/.*)?$`), ".damaged"},
}

// kindOf returns the pattern of a path.
func (in *instance) kindOf(path string) string {
	for _, d := range [][2]string{{filepath.Join(in.dir, "root"), "root"}, {filepath.Join(in.dir, "logs"), "logs"}, {in.state, "state"}} {
		if rest, ok := strings.CutPrefix(path, d[0]+"/"); ok {
			path = d[1] + "/" + rest
		}
	}
	for _, p := range placeholders {
		path = p.what.ReplaceAllString(path, p.with)
	}
	return path
}

// files returns all files of the instance by kind, without mounts and the content of images and volumes.
func (in *instance) files() map[string][]string {
	in.t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		in.t.Fatal(err)
	}
	mounted := func(path string) bool { return strings.Contains(string(mounts), " "+path+" ") }
	data := regexp.MustCompile(`/snapshots/\d+/|/kubernetes\.io~empty-dir/|/root/volumes/[^/]+/[^/]+/`)
	kinds := map[string][]string{}
	for _, root := range []string{filepath.Join(in.dir, "root"), filepath.Join(in.dir, "logs"), in.state} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case mounted(path) && d.IsDir():
				return fs.SkipDir
			case mounted(path) || d.IsDir() || d.Type()&fs.ModeSocket != 0 || data.MatchString(path):
				return nil
			}
			kind := in.kindOf(path)
			kinds[kind] = append(kinds[kind], path)
			return nil
		})
		if err != nil {
			in.t.Fatal(err)
		}
	}
	return kinds
}

// TestAttackDamagedFiles damages one file of one kind while the agent is down. The agent starts again; unrelated pods are untouched; the
// affected one runs, after at most one restart, and can be removed.
func TestAttackDamagedFiles(t *testing.T) {
	in := newInstance(t, "fileCheckFrequency: 1s", "crashLoopBackOff: {maxContainerRestartPeriod: 1s}")
	in.start()
	if _, err := in.run("apply", "-f", writeFile(t, sleeper("applied", ":"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // also when a round fails: the pod, and with it its bridge, would stay
		if in.cmd == nil {
			in.start()
		}
		if _, err := in.run("delete", "--ignore-not-found", "pod", "applied"); err != nil {
			t.Error(err)
		}
	})
	in.put("host", strings.Replace(sleeper("host", ":"), "spec:\n", "spec:\n  hostNetwork: true\n", 1))
	in.put("stays", sleeper("stays", ":"))
	victim := strings.Replace(victim, "PORT", fmt.Sprint(ports.Take(t)), 1)
	in.put("victim", victim)
	names := []string{"applied", "host", "stays"}
	for _, n := range append(names, "victim") {
		in.ready(n)
	}
	if _, err := in.run("cordon"); err != nil { // for its file; pods that are there go on
		t.Fatal(err)
	}
	check := in.untouched(names...)
	table := fileKinds()
	tried := map[string]bool{}
	strange := map[string]bool{} // files of unknown kinds in the round before; a kill can leave a file half-written, which must not last
	for round := 0; ; round++ {
		p := in.ready("victim")
		in.kill9()
		kinds := in.files()
		before := strange
		strange = map[string]bool{}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			if _, ok := table[kind]; ok || strings.HasSuffix(kind, ".damaged") {
				continue
			}
			for _, path := range kinds[kind] {
				if strange[path] = true; before[path] {
					t.Errorf("%s is of no kind that is known: add %q to fileKinds", path, kind)
				}
			}
		}
		kind, way := nextDamage(kinds, tried)
		if kind == "" {
			in.start()
			break
		}
		path := ofVictim(kinds[kind], p, in)
		when := fmt.Sprintf("round %d, %s %s (%s):", round, kind, way, path)
		t.Log(when)
		if err := damagetest.Ways()[way](path); err != nil {
			t.Fatal(when, err)
		}
		in.start()
		_ = os.Remove(damagetest.Stray(path))
		check(when)
		in.ready("victim")
		if strings.Contains(kind, "{id}") || strings.Contains(kind, "{uid}") { // it can be removed, and made again
			if _, err := in.run("uncordon"); err != nil {
				t.Fatal(err)
			}
			in.drop("victim")
			in.gone("victim")
			in.put("victim", victim)
			in.ready("victim")
			if _, err := in.run("cordon"); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("at the end")
	if _, err := in.run("uncordon"); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kinds are known; files were damaged %d times", len(table), len(tried))
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// nextDamage returns a kind and a way of damage that were not tried yet; empty if all were.
func nextDamage(kinds map[string][]string, tried map[string]bool) (kind, way string) {
	only := regexp.MustCompile(os.Getenv("MONOPOD_ATTACK_FILES")) // to look into one kind
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if !only.MatchString(kind) {
			continue
		}
		if k, known := fileKinds()[kind]; !known || k.skip {
			continue
		}
		ways := slices.Sorted(maps.Keys(damagetest.Ways()))
		slices.Reverse(ways) // what replaces the file last: some are not made again
		for _, way := range ways {
			name := kind + " " + way
			if tried[name] || !large() && !slices.Contains(smallSample(), name) {
				continue
			}
			tried[name] = true
			return kind, way
		}
	}
	return "", ""
}

// smallSample is the selection for CI.
func smallSample() []string {
	return []string{
		"state/logs/{id}/meta.json empty", "state/logs/{id}/stdout link", "state/containerd/io.containerd.runtime.v2.task/monopod/{id}/bootstrap.json garbage",
		"root/drain.json directory", "root/events/events.log garbage", "root/cni/networks/monopod/{ip} empty", "root/shutdown.json truncated", "root/pods/{uid}/claims/victim empty", "state/pause/{id}/pid garbage",
	}
}

// ofVictim selects the file of the victim, if there is one among the paths.
func ofVictim(paths []string, p corev1.Pod, in *instance) string {
	id := strings.TrimPrefix(containerID(p, "c"), "containerd://")
	sandboxes := map[string]bool{}
	pins, _ := filepath.Glob(filepath.Join(in.state, "pause", "*"))
	for _, d := range pins { // only the victim shares its process namespace
		sandboxes[filepath.Base(d)] = true
	}
	for _, path := range paths {
		for part := range strings.SplitSeq(path, "/") {
			if part == string(p.UID) || strings.HasPrefix(part, id) || sandboxes[part] || part == "victim" {
				return path
			}
		}
	}
	return paths[0]
}
