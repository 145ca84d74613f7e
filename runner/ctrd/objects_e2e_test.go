//go:build e2e

package ctrd_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sys/unix"

	"monopod/e2e/ctrdtest"
	"monopod/e2e/testimages"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/ctrd/trees"
)

// holding returns the files below dir that contain text, those on our tmpfs left out.
func holding(s *ctrdtest.Stage, dir, text string) []string {
	s.T.Helper()
	var found []string
	ctrdtest.Check(s.T, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // it is gone
		case path == s.Dirs.SecretsDir():
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return nil
	}))
	return found
}

const (
	appMap    = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app}\ndata: {greeting: %q, a.conf: \"x=1\"}\n"
	appSecret = "apiVersion: v1\nkind: Secret\nmetadata: {name: app}\nstringData: {password: %q}\n"
	envPod    = `
apiVersion: v1
kind: Pod
metadata: {name: env}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: ` + ctrdtest.TestImage + `
    command: [sh, -c]
    args: ['echo "[$greeting] [$P_greeting] [$PASSWORD] [$BOTH] [$(PASSWORD)] [$NONE]"; exec sleep 1000']
    envFrom:
    - configMapRef: {name: app}
    - {prefix: P_, configMapRef: {name: app}}
    - secretRef: {name: gone, optional: true}
    env:
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: app, key: password}}}
    - {name: BOTH, value: $(greeting)-$(PASSWORD)}
    - {name: NONE, valueFrom: {configMapKeyRef: {name: app, key: none, optional: true}}}
`
)

// TestVariablesOfObjects checks env and envFrom of ConfigMaps and Secrets, and that the content of a Secret is in no other file.
func TestVariablesOfObjects(t *testing.T) {
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external=%t", external), func(t *testing.T) {
			w := ctrdtest.NewWorld(t)
			if external {
				ctrdtest.StartContainerd(t, w)
			}
			s := w.Stage(t)
			defer s.Close()
			const secret = "s3cret-4711"
			s.Play(envPod)
			ctrdtest.Within(t, 20*time.Second, "the pod waits for the ConfigMap", func() bool {
				reason, why := s.Why("env")
				return reason == runner.ReasonCreateContainerConfigError && strings.Contains(why, `configmap "app" not found`)
			})
			s.Play(envPod, fmt.Sprintf(appMap, "hello"))
			ctrdtest.Within(t, 20*time.Second, "the pod waits for the Secret", func() bool {
				_, why := s.Why("env")
				return strings.Contains(why, `secret "app" not found`)
			})
			s.Play(envPod, fmt.Sprintf(appMap, "hello"), fmt.Sprintf(appSecret, secret))
			s.WaitOutput("env", "[hello] [hello] ["+secret+"] [hello-"+secret+"] ["+secret+"] []")
			key := manifests.Key{Namespace: "default", Name: "env"}
			pid := s.PID(t, key)
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			ctrdtest.Check(t, err)
			if !bytes.Contains(env, []byte("PASSWORD="+secret+"\x00")) {
				t.Errorf("environment: %q", env)
			}

			id := s.Index.OfPod(key)[0].ID
			result, err := s.Processes.Exec(t.Context(), key, runner.ExecRequest{
				ContainerID: id, Command: []string{"sh", "-c", "echo $BOTH"}, Timeout: 20 * time.Second, Limit: 1000,
			})
			if err != nil || strings.TrimSpace(string(result.Output)) != "hello-"+secret {
				t.Errorf("a command in the container sees %q (%v)", result.Output, err)
			}

			// Editing or deleting the objects restarts no container.
			s.Play(envPod, fmt.Sprintf(appMap, "edited"), fmt.Sprintf(appSecret, "other"))
			s.Play(envPod)
			if now := s.PID(t, key); now != pid {
				t.Errorf("the container was restarted: pid %d is %d", pid, now)
			}
			for _, dir := range []string{w.Dir, w.Run, "/tmp/runc-process"} {
				for _, path := range holding(s, dir, secret) {
					if !strings.HasPrefix(path, filepath.Join(w.Dir, "pods")) { // what the container itself has printed
						t.Errorf("%s holds the secret", path)
					}
				}
			}
			for _, p := range s.Pool.Pods() {
				if text := fmt.Sprintf("%+v", p.Pod); strings.Contains(text, secret) {
					t.Error("the status shows the secret")
				}
			}
		})
	}
}

const filesPod = `
apiVersion: v1
kind: Pod
metadata: {name: files, labels: {tier: %q}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1234}
  containers:
  - name: c
    image: ` + ctrdtest.TestImage + `
    command: [sh, -c]
    args:
    - |
      last=
      while true; do
        now="$(cat /map/greeting /map/x/conf /secret/password /down/labels /all/g /all/p /all/cpu 2>&1 | tr '\n' ' ') $(stat -L -c %%a /map/greeting /map/x/conf /secret/password | tr '\n' ' ')$(ls /none | wc -l) $(touch /map/new 2>/dev/null && echo writable)"
        [ "$now" = "$last" ] || echo "$now"
        last="$now"
        sleep 0.05
      done
    resources: {limits: {cpu: 500m}}
    volumeMounts:
    - {name: map, mountPath: /map}
    - {name: secret, mountPath: /secret}
    - {name: down, mountPath: /down}
    - {name: all, mountPath: /all}
    - {name: none, mountPath: /none}
  volumes:
  - {name: map, configMap: {name: app, items: [{key: greeting, path: greeting}, {key: a.conf, path: x/conf, mode: 0440}]}}
  - {name: secret, secret: {secretName: app, defaultMode: 0444}}
  - {name: down, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
  - name: all
    projected:
      sources:
      - configMap: {name: app, items: [{key: greeting, path: g}]}
      - secret: {name: app, items: [{key: password, path: p}]}
      - downwardAPI: {items: [{path: cpu, resourceFieldRef: {containerName: c, resource: limits.cpu, divisor: 1m}}]}
  - {name: none, configMap: {name: gone, optional: true}}
`

// TestVolumesOfObjects checks content, modes and edits of all four kinds in the container.
func TestVolumesOfObjects(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer s.Close()
	secret := fmt.Sprintf(appSecret, "s3cret-4712")
	s.Play(fmt.Sprintf(filesPod, "one"), secret)
	ctrdtest.Within(t, 20*time.Second, "the pod waits for the ConfigMap", func() bool {
		reason, why := s.Why("files")
		return reason == runner.ReasonFailedMount && strings.Contains(why, `MountVolume.SetUp failed for volume "map" : configmap "app" not found`)
	})
	s.Play(fmt.Sprintf(filesPod, "one"), secret, fmt.Sprintf(appMap, "hello"))
	s.WaitOutput("files", `hellox=1s3cret-4712tier="one"hellos3cret-4712500 644 440 444 0 `)
	key := manifests.Key{Namespace: "default", Name: "files"}
	pid := s.PID(t, key)
	if strings.Contains(s.Output("files"), "writable") {
		t.Error("the container can write into the volume")
	}
	s.Play(fmt.Sprintf(filesPod, "two"), secret, fmt.Sprintf(appMap, "edited"))
	s.WaitOutput("files", `editedx=1s3cret-4712tier="two"editeds3cret-4712500 `)

	// Deleted objects stay in the volumes, and the pod keeps running, also when its container restarts.
	s.Play(fmt.Sprintf(filesPod, "two"), secret)
	ctrdtest.Within(t, 10*time.Second, "the pod says what is missing", func() bool {
		_, why := s.Why("files")
		return strings.Contains(why, `configmap "app" not found; running containers continue`)
	})
	if now := s.PID(t, key); now != pid {
		t.Errorf("the container was restarted: pid %d is %d", pid, now)
	}
	ctrdtest.Check(t, unix.Kill(int(pid), unix.SIGKILL))
	ctrdtest.Within(t, 20*time.Second, "the container runs again", func() bool {
		st := s.State(t, key)
		c := st.Containers[len(st.Containers)-1]
		return c.State == runner.ContainerRunning && c.PID != pid
	})
	s.WaitOutput("files", `editedx=1s3cret-4712tier="two"`)

	out, err := exec.Command("findmnt", "-n", "-o", "FSTYPE", "--target", s.Dirs.FilesDir(s.State(t, key).Sandbox.UID)).Output()
	ctrdtest.Check(t, err)
	if strings.TrimSpace(string(out)) != "tmpfs" {
		t.Errorf("volumes are on %s", out)
	}
	for _, dir := range []string{w.Dir, w.Run} {
		for _, path := range holding(s, dir, "s3cret-4712") {
			if !strings.HasPrefix(path, filepath.Join(w.Dir, "pods")) {
				t.Errorf("%s holds the secret", path)
			}
		}
	}
}

// TestImagePullSecrets checks that a private image is pulled with a Secret of either type, once the Secret exists.
func TestImagePullSecrets(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	defer s.Close()
	const password = "s3cret-4713"
	addr := testimages.AuthRegistry(t, "me", password)
	for i, kind := range []string{"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"} {
		name := fmt.Sprintf("private%d", i)
		ref := addr + "/" + name + ":1"
		testimages.Push(t, ref, testimages.Busybox(t, nil), remote.WithAuth(&authn.Basic{Username: "me", Password: password}))
		pod := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 0
  imagePullSecrets: [{name: registry}]
  containers: [{name: c, image: %q, command: [sh, -c, "echo pulled; exec sleep 1000"]}]
`, name, ref)
		s.Play(pod)
		ctrdtest.Within(t, 20*time.Second, "the pull is refused", func() bool {
			reason, _ := s.Why(name)
			return reason == runner.ReasonErrImagePull || reason == runner.ReasonImagePullBackOff
		})
		body, key := fmt.Sprintf(`{%q: {"username": "me", "password": %q}}`, addr, password), ".dockercfg"
		if i == 0 {
			body, key = `{"auths": `+body+`}`, ".dockerconfigjson"
		}
		s.Play(pod, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: registry}\ntype: %s\nstringData: {%s: '%s'}\n", kind, key, body))
		s.WaitOutput(name, "pulled")
	}
	for _, path := range holding(s, w.Dir, password) {
		t.Errorf("%s holds the password", path)
	}
}

// TestSecretsAcrossTheAgent checks that variables and volumes of Secrets survive a restart of the agent, and are created from the
// manifests if the tmpfs is empty, as after a reboot. They are removed with the pods.
func TestSecretsAcrossTheAgent(t *testing.T) {
	w := ctrdtest.NewWorld(t)
	s := w.Stage(t)
	secret, objects := fmt.Sprintf(appSecret, "s3cret-4714"), fmt.Sprintf(appMap, "hello")
	docs := []string{envPod, fmt.Sprintf(filesPod, "one"), secret, objects}
	s.Play(docs...)
	s.WaitOutput("env", "[s3cret-4714]")
	s.WaitOutput("files", "s3cret-4714")
	env, files := manifests.Key{Namespace: "default", Name: "env"}, manifests.Key{Namespace: "default", Name: "files"}
	before := [2]uint32{s.PID(t, env), s.PID(t, files)}
	s.Stop()
	s.Agent.Stop(t)

	s = w.Stage(t)
	s.Play(envPod, fmt.Sprintf(filesPod, "two"), secret, fmt.Sprintf(appMap, "edited while away"))
	s.WaitOutput("files", "edited while away")
	if now := [2]uint32{s.PID(t, env), s.PID(t, files)}; now != before {
		t.Errorf("pids were %v, are %v", before, now)
	}
	// A restarted container gets the current content of the objects.
	ctrdtest.Check(t, unix.Kill(int(before[0]), unix.SIGKILL))
	s.WaitOutput("env", "[edited while away]")

	all := s.Index.OfPod(env) // the newest comes last; the one before may still be there, without its files
	key := s.Dirs.HiddenFile(all[len(all)-1].ID)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("hidden process: %v %v", info, err)
	}
	dir := s.Dirs.SecretsDir()
	s.Close()
	for _, d := range []string{"process", "volumes"} {
		if left := trees.Names(filepath.Join(dir, d)); len(left) > 0 {
			t.Errorf("%s: %v is left", d, left)
		}
	}
}
