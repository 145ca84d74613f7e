package trial

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/internal/cause"
	"monopod/manifests"
)

var update = flag.Bool("update", false, "rewrite golden files")

var t0 = time.Unix(1_700_000_000, 0)

// pod is a pod with one container c in a phase, changed by edits.
func pod(name string, phase corev1.PodPhase, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "c"}}},
		Status:     corev1.PodStatus{Phase: phase, PodIP: "10.84.0.2", ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func ready(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses[0].Ready = true
	p.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{}
}

func withProbe(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{} }

func never(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

func waits(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: "why it waits"}
	}
}

func restarted(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].RestartCount = n
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}
	}
}

func endedWith(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "OOMKilled"}
	}
}

// withSidecar adds a sidecar that was killed at the end of the pod.
func withSidecar(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		always := corev1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{exited("side", code, 9)}
	}
}

// withEarlier adds a container that ended before the others.
func withEarlier(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Terminated.FinishedAt = metav1.NewTime(t0.Add(5 * time.Second))
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, exited("first", code, 2))
	}
}

func exited(name string, code int32, second int) corev1.ContainerStatus {
	end := &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(t0.Add(time.Duration(second) * time.Second))}
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: end}}
}

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	}
}

func TestWhatBecomesOfAPod(t *testing.T) {
	rules := Rules{MaxRestarts: 3, MinReady: time.Second}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		rules  Rules
		result Result
		reason string
		again  time.Duration
	}{
		"succeeded":                                {pod: pod("a", corev1.PodSucceeded), rules: rules, result: OK},
		"failed by its exit code":                  {pod: pod("a", corev1.PodFailed, endedWith(137)), rules: rules, result: Failed, reason: "container c ended with exit code 137 (OOMKilled)"},
		"failed, and its sidecar was killed":       {pod: pod("a", corev1.PodFailed, endedWith(3), withSidecar(137)), rules: rules, result: Failed, reason: "container c ended with exit code 3 (OOMKilled)"},
		"only its sidecar has an exit code":        {pod: pod("a", corev1.PodFailed, endedWith(0), withSidecar(137)), rules: rules, result: Failed, reason: "container side ended with exit code 137"},
		"the first of two that failed":             {pod: pod("a", corev1.PodFailed, endedWith(143), withEarlier(3)), rules: rules, result: Failed, reason: "container first ended with exit code 3"},
		"failed as a whole":                        {pod: pod("a", corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "DeadlineExceeded", "too long" }), rules: rules, result: Failed, reason: "DeadlineExceeded: too long"},
		"failed for no reason":                     {pod: pod("a", corev1.PodFailed), rules: rules, result: Failed, reason: "the way is blocked"},
		"pending":                                  {pod: pod("a", corev1.PodPending), rules: rules, result: Waiting, reason: "the way is blocked"},
		"ready by its probe":                       {pod: pod("a", corev1.PodRunning, ready, withProbe), rules: rules, result: OK},
		"just ready without a probe":               {pod: pod("a", corev1.PodRunning, ready), rules: rules, result: Waiting, reason: "it has only just become Ready", again: time.Second},
		"ready at once when nobody minds":          {pod: pod("a", corev1.PodRunning, ready), rules: Rules{}, result: OK},
		"ready, and meant to finish":               {pod: pod("a", corev1.PodRunning, ready, withProbe, never), rules: Rules{Finish: true}, result: Waiting, reason: "the way is blocked"},
		"ready, and not meant to finish":           {pod: pod("a", corev1.PodRunning, ready, withProbe), rules: Rules{Finish: true}, result: OK},
		"it has an address, and that is enough":    {pod: pod("a", corev1.PodPending), rules: Rules{Addresses: true}, result: OK},
		"restarted twice":                          {pod: pod("a", corev1.PodRunning, restarted(2), waits("CrashLoopBackOff")), rules: rules, result: Waiting, reason: "the way is blocked"},
		"restarted three times":                    {pod: pod("a", corev1.PodRunning, restarted(3), waits("CrashLoopBackOff")), rules: rules, result: Failed, reason: "container c was restarted 3 times; container c ended with exit code 2"},
		"restarted three times, and runs now":      {pod: pod("a", corev1.PodRunning, restarted(3), ready, withProbe), rules: rules, result: OK},
		"restarted often, and nobody minds":        {pod: pod("a", corev1.PodRunning, restarted(30), waits("CrashLoopBackOff")), rules: Rules{MaxRestarts: -1}, result: Waiting, reason: "the way is blocked"},
		"an image that may come":                   {pod: pod("a", corev1.PodPending, waits("ImagePullBackOff")), rules: rules, result: Waiting, reason: "the way is blocked"},
		"an image that may not be pulled":          {pod: pod("a", corev1.PodPending, waits("ErrImageNeverPull")), rules: rules, result: Failed, reason: "container c: ErrImageNeverPull: why it waits"},
		"a ConfigMap that is not in the documents": {pod: pod("a", corev1.PodPending, waits("CreateContainerConfigError")), rules: rules, result: Failed, reason: "container c: CreateContainerConfigError: why it waits"},
	} {
		t.Run(name, func(t *testing.T) {
			r, next := New(c.rules, t0, nil, nil).Look(t0, []View{{Pod: c.pod, Why: "the way is blocked"}}, nil)
			if p := r.Pods[0]; p.Result != c.result || p.Reason != c.reason {
				t.Errorf("%s (%s), want %s (%s)", p.Result, p.Reason, c.result, c.reason)
			}
			if r.Result != c.result || r.Decided() != (c.result != Waiting) {
				t.Errorf("the run: %s, decided %v", r.Result, r.Decided())
			}
			if want := t0.Add(c.again); c.again > 0 != !next.IsZero() || c.again > 0 && !next.Equal(want) {
				t.Errorf("next look at %v", next)
			}
		})
	}
}

func TestReadinessIsCountedFromItsLastBeginning(t *testing.T) {
	up, down := []View{{Pod: pod("a", corev1.PodRunning, ready)}}, []View{{Pod: pod("a", corev1.PodRunning)}}
	x := New(Rules{MinReady: time.Second}, t0, nil, nil)
	for i, step := range []struct {
		after time.Duration
		views []View
		want  Result
	}{
		{0, up, Waiting},
		{900 * time.Millisecond, up, Waiting},
		{950 * time.Millisecond, down, Waiting},
		{1100 * time.Millisecond, up, Waiting},
		{2 * time.Second, up, Waiting},
		{2100 * time.Millisecond, up, OK},
		{2200 * time.Millisecond, up, OK},
	} {
		r, _ := x.Look(t0.Add(step.after), step.views, nil)
		if r.Result != step.want {
			t.Errorf("step %d: %s, want %s", i, r.Result, step.want)
		}
		if i == 6 && (r.Pods[0].Seconds != 2.1 || r.Seconds != 2.2) {
			t.Errorf("it was up after %v of %v", r.Pods[0].Seconds, r.Seconds)
		}
	}
}

func TestARegistryThatDoesNotGiveAnImageIsNotAskedForEver(t *testing.T) {
	says := func(message string, failing cause.Cause) []View {
		p := pod("a", corev1.PodPending, waits("ImagePullBackOff"))
		p.Status.ContainerStatuses[0].State.Waiting.Message = message
		return []View{{Pod: p, Why: "the way is blocked", Failing: []cause.Cause{failing}}}
	}
	const message = `Back-off pulling image "registry.example/a:2": ErrImagePull: pull image "registry.example/a:2": registry.example/a:2: not found`
	gone := says(message, cause.Cause{Kind: cause.ImageNotFound, Container: "c"})
	refused := says("dial tcp: connection refused", cause.Cause{Kind: cause.RegistryUnreachable, Container: "c"})
	x := New(Rules{MaxRestarts: 3}, t0, nil, nil)
	for i, step := range []struct {
		after time.Duration
		views []View
		want  Result
		again time.Duration
	}{
		{0, gone, Waiting, imagePatience},
		{imagePatience / 2, refused, Waiting, 0},
		{imagePatience, gone, Waiting, 2 * imagePatience}, // denied anew
		{imagePatience + 1, nil, OK, 0},
		{2*imagePatience - 1, gone, Waiting, 3*imagePatience - 1},
		{2 * imagePatience, gone, Waiting, 3*imagePatience - 1},
		{3*imagePatience - 1, gone, Failed, 0},
	} {
		r, next := x.Look(t0.Add(step.after), step.views, nil)
		if again := next.Sub(t0); r.Result != step.want || !next.IsZero() && again != step.again || next.IsZero() != (step.again == 0) {
			t.Errorf("step %d: %s, again at %v", i, r.Result, next)
		}
		if r.Result == Failed && r.Pods[0].Reason != "container c: ImagePullBackOff: "+message {
			t.Error(r.Pods[0].Reason)
		}
	}
	x = New(Rules{MaxRestarts: -1}, t0, nil, nil)
	x.Look(t0, gone, nil)
	if r, next := x.Look(t0.Add(time.Hour), gone, nil); r.Result != Waiting || !next.IsZero() {
		t.Errorf("everything is waited for: %s, %v", r.Result, next)
	}
}

// TestEachContainerIsDeniedByItself: what has been denied to one does not shorten the patience with another.
func TestEachContainerIsDeniedByItself(t *testing.T) {
	denied := func(names ...string) []View {
		p := pod("a", corev1.PodPending, func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })
		var failing []cause.Cause
		for _, name := range []string{"b", "c"} {
			w := &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "pulling"}
			if slices.Contains(names, name) {
				w.Message = "403 Forbidden"
				failing = append(failing, cause.Cause{Kind: cause.ImageForbidden, Container: name})
			}
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: w}})
		}
		return []View{{Pod: p, Failing: failing}}
	}
	x := New(Rules{}, t0, nil, nil)
	x.Look(t0, denied("b"), nil)
	x.Look(t0.Add(imagePatience/4), denied("b", "c"), nil)
	x.Look(t0.Add(imagePatience/2), denied("c"), nil)
	late := t0.Add(imagePatience)
	if r, next := x.Look(late, denied("b", "c"), nil); r.Result != Waiting || !next.Equal(t0.Add(imagePatience*5/4)) {
		t.Errorf("%s, again at %v", r.Result, next)
	}
	if r, _ := x.Look(t0.Add(imagePatience*5/4), denied("b", "c"), nil); r.Result != Failed || r.Pods[0].Reason != "container c: ErrImagePull: 403 Forbidden" {
		t.Errorf("%+v", r.Pods)
	}
}

func TestWhatARegistrySaysIsNoErrorOfThisMachine(t *testing.T) {
	for c, want := range map[cause.Cause]bool{
		{Kind: cause.ImageNotFound, Container: "c"}:       true,
		{Kind: cause.ImagePlatform, Container: "c"}:       true,
		{Kind: cause.ImageUnauthorized, Container: "c"}:   true,
		{Kind: cause.ImageForbidden, Container: "c"}:      true,
		{Kind: cause.ImageNotFound}:                       true, // of the pod: of all of its containers
		{Kind: cause.ImageNotFound, Container: "another"}: false,
		{Kind: cause.ImagePull, Container: "c"}:           false,
		{Kind: cause.ImageBroken, Container: "c"}:         false,
		{Kind: cause.RegistryUnknown, Container: "c"}:     false,
		{Kind: cause.RegistryError, Container: "c"}:       false,
		{Kind: cause.NoSpace, Container: "c"}:             false,
		{}:                                                false,
	} {
		if got := (View{Failing: []cause.Cause{{Kind: cause.Start, Container: "c"}, c}}).denied("c"); got != want {
			t.Errorf("%+v: a denial: %v", c, got)
		}
	}
}

func TestAPodThatHasNotBeenMadeIsWaitedFor(t *testing.T) {
	x := New(Rules{}, t0, []*manifests.Pod{{Object: pod("b", "")}, {Object: pod("a", "")}}, nil)
	r, _ := x.Look(t0, []View{{Pod: pod("a", corev1.PodSucceeded)}}, nil)
	if r.Decided() || r.Result != Waiting || len(r.Pods) != 2 || r.Pods[1].Name != "b" || r.Pods[1].Reason != "it has not been created yet" {
		t.Errorf("%+v", r)
	}
}

func TestWorkloadsAreJudgedByTheirPodsAndJobsByTheirEnd(t *testing.T) {
	two := int32(2)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	documents := []*manifests.Object{
		{Kind: "Deployment", Object: &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{Replicas: &two}}},
		{Kind: "Job", Object: &batchv1.Job{ObjectMeta: named("load")}},
		{Kind: "CronJob", Object: &batchv1.CronJob{ObjectMeta: named("nightly")}},
	}
	x := New(Rules{}, t0, nil, documents)
	web := func(i string) View {
		return View{Pod: pod("web-"+i, corev1.PodRunning, ready, ownedBy("Deployment", "web"))}
	}
	load := func(phase corev1.PodPhase) View {
		return View{Pod: pod("load-0", phase, endedWith(1), ownedBy("Job", "load")), Why: "x"}
	}
	for name, c := range map[string]struct {
		views []View
		jobs  map[string]string
		want  Result
		names string
	}{
		"nothing yet":           {nil, nil, Waiting, "Deployment:waiting:0 of 2 pods are up Job:waiting:the Job has not finished"},
		"one of two":            {[]View{web("0")}, map[string]string{"default/load": "Complete"}, Waiting, "Deployment:waiting:1 of 2 pods are up Job:ok:"},
		"an attempt has failed": {[]View{web("0"), web("1"), load(corev1.PodFailed)}, nil, Waiting, "Deployment:ok: Job:waiting:the Job has not finished"},
		"the Job has failed":    {[]View{web("0"), web("1"), load(corev1.PodFailed)}, map[string]string{"default/load": "Failed"}, Failed, "Deployment:ok: Job:failed:the Job has failed: pod load-0: container c ended with exit code 1 (OOMKilled)"},
		"all is well":           {[]View{web("0"), web("1"), load(corev1.PodFailed)}, map[string]string{"default/load": "Complete"}, OK, "Deployment:ok: Job:ok:"},
	} {
		r, _ := x.Look(t0, c.views, c.jobs)
		var got []string
		for _, w := range r.Workloads {
			got = append(got, w.Kind+":"+string(w.Result)+":"+w.Reason)
		}
		if r.Result != c.want || strings.Join(got, " ") != c.names {
			t.Errorf("%s: %s, %v", name, r.Result, got)
		}
	}
}

// example is a report with one of everything.
func example() Report {
	return Report{
		Result: Failed, Seconds: 2.5, Run: Run{Number: 1, Socket: "/run/monopod-runs/1/monopod.sock", Subnet: "10.84.1.0/24", Log: "/var/lib/monopod-runs/1/monopod.log"},
		Pods: []Pod{
			{Namespace: "default", Name: "web", Result: OK, Phase: "Running", IP: "10.84.1.2", IPs: []string{"10.84.1.2"}, Ports: []Port{{Name: "http", Container: 80, Host: 40001, Protocol: "TCP"}}, Containers: []string{"web"}, Seconds: 1.25},
			{Namespace: "default", Name: "web2", Result: Waiting, Reason: "it is not Ready", Phase: "Running", Seconds: 2.5, Why: []string{"default/web2 is not ready:", "  because  <404>"}},
			{Namespace: "team", Name: "web", Result: Failed, Reason: "container a ended with exit code 3", Phase: "Failed", Containers: []string{"a"}, Restarts: 1, Seconds: 2, Logs: []Log{{Container: "a", Text: "<oh> \x1b[31mno \"&\" \xff\n"}}},
		},
		Workloads: []Workload{{Kind: "Job", Namespace: "default", Name: "load", Result: TimedOut, Reason: "the Job has not finished", Seconds: 2.5}},
		Refused:   []Refusal{{"pods.yaml:3:5", "pods.yaml:3:5: pod default/x: spec.containers: is missing"}},
		Command:   &Command{Args: []string{"go", "test"}, ExitCode: 1, Seconds: 0.5},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, got, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (rewrite with -update): -want +got:\n%s", file, diff)
	}
}

func TestReportsAreWhatToolsRead(t *testing.T) {
	var j, x bytes.Buffer
	if err := errors.Join(example().WriteJSON(&j), example().WriteJUnit(&x)); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", j.Bytes())
	golden(t, "report.xml", x.Bytes())
	var back Report
	if err := json.Unmarshal(j.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	want := example()
	want.Refused[0].Where = "" // part of the text
	want.Pods[2].Logs[0].Text = strings.ToValidUTF8(want.Pods[2].Logs[0].Text, "\ufffd")
	if diff := cmp.Diff(want, back, cmp.AllowUnexported(Pod{})); diff != "" {
		t.Errorf("read again: %s", diff)
	}
	var suites struct {
		Suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Failure *struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
				Out string `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(x.Bytes(), &suites); err != nil {
		t.Fatalf("a log breaks the XML: %v", err)
	}
	failures := 0
	for _, c := range suites.Suite.Cases {
		if c.Failure != nil {
			failures++
		}
	}
	s := suites.Suite
	if s.Tests != len(s.Cases) || s.Failures != failures || failures != 5 {
		t.Errorf("%d tests, %d failures are announced, there are %d and %d", s.Tests, s.Failures, len(s.Cases), failures)
	}
	if want := "default/web2 is not ready:\n  because  <404>"; s.Cases[1].Failure.Text != want {
		t.Errorf("the cause is %q", s.Cases[1].Failure.Text)
	}
	if want := "--- container a\n<oh> \ufffd[31mno \"&\" \ufffd\n"; s.Cases[2].Out != want || s.Cases[2].Failure.Message != "container a ended with exit code 3" {
		t.Errorf("%q: %q", s.Cases[2].Failure.Message, s.Cases[2].Out)
	}
}

func TestTheEnvironmentOfACommand(t *testing.T) {
	r := Report{Pods: []Pod{
		{Namespace: "default", Name: "web-1.a", IP: "10.84.0.2", Ports: []Port{{Name: "http-alt", Container: 8080, Host: 40001}, {Container: 9090}, {Container: 8080, Protocol: "UDP"}}},
		{Namespace: "team", Name: "db", IP: "fd00::2"},
	}}
	got, err := r.Environ()
	want := []string{
		"POD_WEB_1_A_IP=10.84.0.2", "POD_WEB_1_A_PORT_HTTP_ALT=8080", "POD_WEB_1_A_PORT=8080", "POD_WEB_1_A_HOSTPORT_HTTP_ALT=40001", "POD_WEB_1_A_HOSTPORT=40001",
		"POD_WEB_1_A_PORT_9090=9090", "POD_WEB_1_A_PORT_8080=8080", "POD_TEAM_DB_IP=fd00::2",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v: -want +got:\n%s", err, diff)
	}
	r.Pods = append(r.Pods, Pod{Namespace: "default", Name: "team-db"})
	if _, err := r.Environ(); err == nil || !strings.Contains(err.Error(), "team/db") || !strings.Contains(err.Error(), "default/team-db") {
		t.Errorf("two pods with one name: %v", err)
	}
}

func TestFreeHostPortsAreGivenToThoseThatAsk(t *testing.T) {
	for name, c := range map[string]struct {
		asked string
		edit  func(*corev1.Pod)
		want  []int32
		// given are those that GivenHostPorts tells afterwards.
		given []int32
		err   string
	}{
		"none":               {asked: "", want: []int32{0, 0, 7000}},
		"by name":            {asked: "http", want: []int32{40000, 0, 7000}, given: []int32{40000}},
		"by number, a space": {asked: "8080, 53", want: []int32{40000, 40001, 7000}, given: []int32{40000, 40001}},
		"by both":            {asked: "http,8080", want: []int32{40000, 0, 7000}, given: []int32{40000}},
		"all":                {asked: "all", want: []int32{40000, 40001, 7000}, given: []int32{40000, 40001, 7000}},
		"one that is fixed":  {asked: "7", want: []int32{0, 0, 7000}, given: []int32{7000}},
		"an unknown one":     {asked: "http,metrics", err: `no container has a port "metrics"`},
		"on the host":        {asked: "http", edit: func(p *corev1.Pod) { p.Spec.HostNetwork = true }, err: "host network"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("a", "", func(p *corev1.Pod) {
				p.Annotations = map[string]string{AnnotationFreeHostPorts: c.asked}
				p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {ContainerPort: 53, Protocol: "UDP"}, {ContainerPort: 7, HostPort: 7000}}
			})
			if c.edit != nil {
				c.edit(p)
			}
			before, next := p.DeepCopy(), int32(40000)
			got, err := FreeHostPorts(p, func(corev1.Protocol, string) (int32, error) { next++; return next - 1, nil })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.want {
				if port := got.Spec.Containers[0].Ports[i].HostPort; port != want {
					t.Errorf("port %d has host port %d, want %d", i, port, want)
				}
			}
			var given []int32
			for _, port := range GivenHostPorts(got) {
				given = append(given, port.HostPort)
			}
			if diff := cmp.Diff(c.given, given); diff != "" {
				t.Errorf("given, -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("the manifest itself was changed: %s", diff)
			}
		})
	}
}

func TestSubnetsOfAPool(t *testing.T) {
	for name, c := range map[string]struct {
		pool string
		i    int
		want string
		ok   bool
	}{
		"the first":                   {"10.84.0.0/16", 0, "10.84.0.0/24", true},
		"the last":                    {"10.84.0.0/16", 255, "10.84.255.0/24", true},
		"beyond it":                   {"10.84.0.0/16", 256, "", false},
		"of a large pool":             {"10.0.0.0/8", 65535, "10.255.255.0/24", true},
		"one that is not divided":     {"10.84.7.0/25", 0, "10.84.7.0/25", true},
		"one that is used up":         {"10.84.7.0/25", 1, "", false},
		"IPv6":                        {"fd00:84::/48", 258, "fd00:84:0:102::/64", true},
		"one of each":                 {"10.84.0.0/16,fd00:84::/48", 3, "10.84.3.0/24,fd00:84:0:3::/64", true},
		"one of each, the first ends": {"10.84.0.0/16,fd00:84::/48", 256, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok, err := Subnet(c.pool, c.i)
			if err != nil || ok != c.ok || ok && got != c.want {
				t.Errorf("%q, %v, %v", got, ok, err)
			}
		})
	}
	if _, _, err := Subnet("10.84", 0); err == nil {
		t.Error("no subnet at all is accepted")
	}
}
