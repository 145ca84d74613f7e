//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/e2e/corpus"
	"monopod/e2e/testimages"
	"monopod/internal/cause"
	"monopod/node/why"
)

// why returns `monopod why NAME -o json`; without a name, it covers everything.
func (in *instance) why(args ...string) (why.Answer, error) {
	var a why.Answer
	out, err := in.run(append([]string{"why", "-o", "json"}, args...)...)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		return a, fmt.Errorf("%w: %s", err, out)
	}
	return a, nil
}

// fine returns an error if why reports a problem.
func (in *instance) fine() error {
	a, err := in.why()
	if err == nil && !a.Fine {
		err = fmt.Errorf("it says %s: %+v", a.Text, a.Chains)
	}
	return err
}

// explains waits until why reports this reason for a pod, with all of the words, and returns its output.
func (in *instance) explains(pod string, reason cause.Kind, words ...string) string {
	in.t.Helper()
	var text string
	in.eventually(fmt.Sprintf("why %s says %s", pod, reason), func() error {
		a, err := in.why(pod)
		if err != nil {
			return err
		}
		if text, err = in.run("why", pod); err != nil {
			return err
		}
		if len(a.Chains) != 1 || a.Chains[0].Reason != reason {
			return fmt.Errorf("%d chains:\n%s", len(a.Chains), text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("%q is not in\n%s", w, text)
			}
		}
		return nil
	})
	return text
}

// answering is a registry that answers all requests with a status.
func answering(t *testing.T, code int, body string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// podOf is a manifest with one container of the given fields, in flow style, and additional fields of the spec.
func podOf(name, container, spec string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {terminationGracePeriodSeconds: 1, %s containers: [{name: c, %s}]}}\n", name, spec, container)
}

const sleeping = `command: [sh, -c, "trap 'exit 0' TERM; sleep 3600 & wait"]`

func TestWhyNamesTheCauseOfRealTrouble(t *testing.T) {
	in := newInstance(t)
	in.start()
	registry := testimages.Registry(t)
	testimages.Push(t, registry+"/busybox:1", testimages.Busybox(t, nil))
	local := "image: " + image + ", "
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	taken := holder.Addr().(*net.TCPAddr).Port
	me, _ := os.Executable()
	for _, c := range []struct {
		name, manifest string
		reason         cause.Kind
		words          []string
	}{
		{"no-tag", podOf("no-tag", "image: '"+registry+"/busybox:2'", ""), cause.ImageNotFound, []string{"404", "busybox:2", "correct spec.containers[0].image", "retry in"}},
		{"unauthorized", podOf("unauthorized", "image: '"+answering(t, 401, "")+"/a:1'", ""), cause.ImageUnauthorized, []string{"401 Unauthorized", "imagePullSecrets"}},
		{"forbidden", podOf("forbidden", "image: '"+answering(t, 403, "")+"/a:1'", ""), cause.ImageForbidden, []string{"403 Forbidden"}},
		{"hurried", podOf("hurried", "image: '"+answering(t, 429, "")+"/a:1'", ""), cause.ImageRateLimited, []string{"429 Too Many Requests"}},
		{"sick", podOf("sick", "image: '"+answering(t, 500, "")+"/a:1'", ""), cause.RegistryError, []string{"500 Internal Server Error"}},
		{"unknown", podOf("unknown", "image: 'registry.invalid/a:1'", ""), cause.RegistryUnknown, []string{"registry.invalid"}},
		{"closed", podOf("closed", "image: '127.0.0.1:1/a:1'", ""), cause.RegistryUnreachable, []string{"127.0.0.1:1", "connection refused"}},
		{"never", podOf("never", "image: 'nothing:1', imagePullPolicy: Never", ""), cause.ImageNeverPull, []string{"imagePullPolicy: IfNotPresent"}},
		{"no-map", podOf("no-map", local+sleeping+", envFrom: [{configMapRef: {name: setings}}]", "") + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: red}}\n", cause.MissingConfigMap, []string{"did you mean settings?"}},
		{"no-key", podOf("no-key", local+sleeping+", env: [{name: A, valueFrom: {secretKeyRef: {name: login, key: pasword}}}]", "") + "---\n{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: x}}\n", cause.MissingKey, []string{"did you mean password?", "no-key.yaml"}},
		{"no-secret", podOf("no-secret", local+sleeping+", volumeMounts: [{name: v, mountPath: /v}]", "volumes: [{name: v, secret: {secretName: gone}}],"), cause.MissingSecret, []string{"Secret gone"}},
		{"no-claim", podOf("no-claim", local+sleeping+", volumeMounts: [{name: v, mountPath: /v}]", "volumes: [{name: v, persistentVolumeClaim: {claimName: gone}}],"), cause.MissingClaim, []string{"PersistentVolumeClaim gone"}},
		{"no-path", podOf("no-path", local+sleeping+", volumeMounts: [{name: v, mountPath: /v}]", "volumes: [{name: v, hostPath: {path: /no/such/place, type: Directory}}],"), cause.HostPath, []string{"/no/such/place", "a directory"}},
		{"root", podOf("root", local+sleeping, "securityContext: {runAsNonRoot: true},"), cause.NonRoot, []string{"runAsUser"}},
		{"no-program", podOf("no-program", local+"command: [/bin/nope]", ""), cause.CommandNotFound, []string{`"/bin/nope"`, "correct spec.containers[0].command"}},
		{"crash", podOf("crash", local+`command: [sh, -c, "echo reading settings; echo no settings >&2; exit 3"]`, ""), cause.Exited, []string{"exit code 3", "no settings", "restart in"}},
		{"segv", podOf("segv", local+`command: [sh, -c, "kill -SEGV $$$$"]`, "hostPID: true,"), cause.Signaled, []string{"SIGSEGV", "139"}},
		{"hungry", podOf("hungry", local+`command: [sh, -c, "tail /dev/zero"], resources: {limits: {memory: 16Mi}}`, ""), cause.OutOfMemory, []string{"ran out of memory", "16Mi", "raise spec.containers[0].resources.limits.memory"}},
		{"deaf", podOf("deaf", local+sleeping+", readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}", ""), cause.ProbeFailed, []string{"TCP port 81", "connection refused", "nothing listens"}},
		{"first", podOf("first", local+sleeping, "initContainers: [{name: setup, image: "+image+", command: [sh, -c, 'echo no disk; exit 1']}],"), cause.Exited, []string{"wait for init container setup", "no disk"}},
		{"second", podOf("the-first", local+sleeping+", ports: [{containerPort: 80, hostPort: 38081}]", "") + podOf("second", local+sleeping+", ports: [{containerPort: 80, hostPort: 38081}]", ""), cause.HostPortPod, []string{"38081/TCP is taken by pod default/the-first", "second.yaml:2"}},
		{"full", podOf("full", local+`command: [sh, -c, "head -c 3000000 /dev/zero > /v/x; sleep 3600"], volumeMounts: [{name: v, mountPath: /v}]`, "volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}],"), cause.Evicted, []string{"too much disk space", "sizeLimit", "recreated"}},
		{"silent", podOf("silent", fmt.Sprintf(`%scommand: [sh, -c, "nc -l -p %d 2>/dev/null; exit 1"], ports: [{containerPort: %d}]`, local, taken, taken), "hostNetwork: true,"), cause.HostPortProcess, []string{"possible cause: the pod's port", fmt.Sprintf("pid %d", os.Getpid())}},
		{"port-taken", podOf("port-taken", fmt.Sprintf(`%scommand: [sh, -c, "httpd -f -p 127.0.0.1:%d"]`, local, taken), "hostNetwork: true,"), cause.HostPortProcess, []string{fmt.Sprintf("%d/TCP", taken), filepath.Base(me)[:min(15, len(filepath.Base(me)))], fmt.Sprintf("pid %d", os.Getpid())}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in.t = t
			in.put(c.name, c.manifest)
			defer in.drop(c.name)
			t.Log("\n" + in.explains(c.name, c.reason, append(c.words, c.name+".yaml")...))
		})
		in.t = t
	}
}

// imageLine matches an image in a manifest.
var imageLine = regexp.MustCompile(`(?m)^( *)image: .*$`)

// standingIn returns a manifest of the corpus with images and commands replaced by ones that exist here.
func standingIn(text, image string, servers ...string) string {
	command := fmt.Sprintf("command: [/bin/probed, '-', serve, %s]", strings.Join(servers, ", "))
	if strings.Contains(text, "command:") {
		command = "# its own command"
	}
	text = strings.Replace(text, "\nspec:\n", "\nspec:\n  terminationGracePeriodSeconds: 1\n", 1)
	return imageLine.ReplaceAllString(text, "${1}image: "+image+"\n${1}"+command)
}

// broken is a manifest of the corpus with one fault, and the fix that a user would make who knows only the output of why.
type broken struct {
	file, pod string
	text      func(t *testing.T, original string) string
	// more are additional files.
	more map[string]string
	// hint must match the message; fix gets its groups and returns the fixed manifest, or adds files.
	hint *regexp.Regexp
	fix  func(in *instance, text string, groups []string) string
}

// corrupt replaces text that must occur exactly once.
func corrupt(was, is string) func(t *testing.T, original string) string {
	return func(t *testing.T, original string) string {
		if strings.Count(original, was) != 1 {
			t.Fatalf("%q is not once in\n%s", was, original)
		}
		return strings.Replace(original, was, is, 1)
	}
}

func brokenManifests(registry string) []broken {
	word := func(_ *instance, text string, g []string) string { return strings.Replace(text, g[1], g[2], 1) }
	return []broken{
		{
			file: "simple-pod", pod: "nginx", text: corrupt("containerPort: 80", "containerport: 80"),
			hint: regexp.MustCompile(`\.(\w+): unknown field; did you mean "(\w+)"\?`), fix: word,
		},
		{
			file: "configmap-configure-pod", pod: "configmap-demo-pod", text: corrupt("name: game-demo           #", "name: game-dmo  #"),
			more: map[string]string{"maps": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: game-demo}\ndata: {player_initial_lives: '3', ui_properties_file_name: x, game.properties: lives, user-interface.properties: colors}\n"},
			hint: regexp.MustCompile(`(?s)uses ConfigMap (\S+),.*did you mean (\S+)\?`), fix: word,
		},
		{
			file: "pod-secret-envFrom", pod: "envfrom-secret", text: func(_ *testing.T, original string) string { return original },
			hint: regexp.MustCompile(`add a Secret named (\S+) in namespace (\S+) to (\S+)`),
			fix: func(in *instance, text string, g []string) string {
				in.write(filepath.Join(g[3], "secret.yaml"), fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData: {user: me}\n", g[1], g[2]))
				return text
			},
		},
		{
			file: "tcp-liveness-readiness", pod: "goproxy", text: func(t *testing.T, original string) string {
				quick := regexp.MustCompile(`(initialDelaySeconds|periodSeconds): \d+`).ReplaceAllString(original, "$1: 1")
				return strings.Replace(quick, "port: 8080\n", "port: 8088\n", 1)
			},
			hint: regexp.MustCompile(`(?s)TCP port (\d+)\).*the programs of the pod listen on (\d+)/TCP`), fix: word,
		},
		{
			file: "startup-coordination", pod: "startup-coordination-example", text: func(_ *testing.T, original string) string {
				return strings.Replace(original, standIn, registry+"/standin:1\n    imagePullPolicy: Never", 1)
			},
			hint: regexp.MustCompile(`pull policy is (\w+)(?s:.*)imagePullPolicy: (\w+) in`), fix: word,
		},
		{
			file: "security-context-2", pod: "security-context-demo-2", text: corrupt("runAsUser: 2000", "runAsUser: 0\n      runAsNonRoot: true"),
			hint: regexp.MustCompile(`set spec.containers\[0\].securityContext.(runAsUser) to a number such as (\d+)`),
			fix: func(_ *instance, text string, g []string) string {
				return regexp.MustCompile(g[1]+`: 0\b`).ReplaceAllString(text, g[1]+": "+g[2])
			},
		},
	}
}

// TestWhatWhySaysIsEnoughToMendAManifest breaks manifests from the corpus, runs only `monopod why` without a name, follows its advice, and
// waits until the pods are ready.
func TestWhatWhySaysIsEnoughToMendAManifest(t *testing.T) {
	files := corpus.Open(t)
	registry := testimages.Registry(t)
	in := newInstance(t)
	in.standIns()
	probed, err := os.ReadFile(filepath.Join(in.bin, "probed"))
	if err != nil {
		t.Fatal(err)
	}
	testimages.Push(t, registry+"/standin:1", testimages.Busybox(t, nil, testimages.File{Path: "bin/probed", Content: probed, Mode: 0o755}))
	in.start()
	for _, b := range brokenManifests(registry) {
		t.Run(b.pod, func(t *testing.T) {
			in.t = t
			i := slices.IndexFunc(files, func(f corpus.File) bool { return strings.Contains(f.Name, b.file) })
			if i < 0 {
				t.Fatal("it is not in the corpus")
			}
			for name, text := range b.more {
				in.put(name, text)
			}
			text := b.text(t, standingIn(string(files[i].Data), standIn, "tcp:8080"))
			in.put("pod", text)
			var groups []string
			var said string
			in.eventually("why says what to do", func() (err error) {
				if said, err = in.run("why"); err != nil {
					return err
				}
				if groups = b.hint.FindStringSubmatch(said); groups == nil {
					return fmt.Errorf("no %s in\n%s\n%s", b.hint, said, text)
				}
				return nil
			})
			t.Log("\n" + said)
			in.put("pod", b.fix(in, text, groups))
			in.ready(b.pod)
			in.eventually("why says that all is fine", in.fine)
		})
		in.t = t
		entries, _ := filepath.Glob(filepath.Join(in.manifests, "*.yaml"))
		for _, e := range entries {
			_ = os.Remove(e)
		}
		in.gone(b.pod)
	}
}

func TestWhyTellsOfARevisionThatWasGoneBackFrom(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("web", sleeper("web", "echo one"))
	first := in.ready("web")
	in.eventually("the first revision is known to be good", func() error {
		out, err := in.run("history", "web")
		if err == nil && !strings.Contains(out, "Ready") {
			err = errors.New(out)
		}
		return err
	})
	in.put("web", sleeper("web", "echo two"))
	in.pod("web", "was changed", func(p corev1.Pod) bool { return isReady(p) && containerID(p, "c") != containerID(first, "c") })
	if out, err := in.run("rollback", "web"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log("\n" + in.explains("web", cause.RolledBack, "revision 1", "revision 1 runs instead of 2", "--to 2` or edit", filepath.Join(in.manifests, "web.yaml")))
}

func TestWhyAnswersWhileContainerdIsDown(t *testing.T) {
	d := startContainerd(t)
	in := newInstance(t, "containerRuntimeEndpoint: unix://"+d.socket)
	in.start()
	in.put("one", sleeper("one", "echo start"))
	in.put("two", sleeper("two", "echo start"))
	in.ready("one")
	in.ready("two")
	d.kill9()
	in.put("broken", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec: {containers: [{name: c, imag: x}]}\n")
	in.explains("one", cause.RuntimeDown, "systemctl status containerd", d.socket, "one.yaml:1")
	in.eventually("everything is told once", func() error {
		a, err := in.why()
		if err == nil && (len(a.Chains) != 2 || a.Chains[0].Reason != cause.RuntimeDown || a.Chains[1].Reason != cause.InputRefused) {
			err = fmt.Errorf("%+v", a)
		}
		return err
	})
	d.start()
	in.drop("broken")
	in.eventually("all is fine again", in.fine)
}

func TestWhyAnswersWithoutADaemon(t *testing.T) {
	in := newInstance(t)
	in.start()
	in.put("web", sleeper("web", "echo from the last run"))
	in.ready("web")
	in.logHas("web", "from the last run")
	in.put("broken", "apiVersion: v1\nkind: Pod\nmetadata: {name: broken}\nspec: {containers: [{name: c, imag: x}]}\n")
	in.eventually("the broken file is told of", func() error {
		out, err := in.run("why", "broken")
		if err == nil && !strings.Contains(out, `did you mean "image"?`) {
			err = errors.New(out)
		}
		return err
	})
	in.kill9()
	c := exec.Command(filepath.Join(in.bin, "monopod-client"), "why")
	c.Env = append(os.Environ(), "MONOPOD_SOCKET="+filepath.Join(in.state, "monopod.sock"), "MONOPOD_CONFIG="+in.config)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"monopod is not running", "start it: `monopod run --config ", `did you mean "image"?`, "from the last run", "web.yaml:1"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	in.start()
	in.drop("broken")
	in.ready("web")
	in.eventually("all is fine again", in.fine)
}
