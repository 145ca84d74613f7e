package why_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/node/why"
)

// chainOf explains a single pod.
func chainOf(f why.Facts) why.Chain { return why.One(f, "default", "web").Chains[0] }

// texts returns the texts of the steps of one kind.
func texts(c why.Chain, kind why.Kind) []string {
	var all []string
	for _, s := range c.Steps {
		if s.Kind == kind {
			all = append(all, s.Text)
		}
	}
	return all
}

// wantStep checks that one of the steps of a kind contains a text.
func wantStep(t *testing.T, c why.Chain, kind why.Kind, want string) {
	t.Helper()
	if all := texts(c, kind); !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, want) }) {
		t.Errorf("no %s with %q in %q", kind, want, all)
	}
}

func TestHeadlines(t *testing.T) {
	dead := func(phase corev1.PodPhase) change {
		return func(p *why.Pod) { unready(p); p.Object.Status.Phase = phase }
	}
	for _, tt := range []struct {
		want string
		f    why.Facts
	}{
		{"is fine", oneOf(web())},
		{"has completed", oneOf(web(dead(corev1.PodSucceeded)))},
		{"is not ready", oneOf(web(ended(1, "Error", "")))},
		{"has failed", oneOf(web(dead(corev1.PodFailed), trouble(model.Trouble{Kind: "Failed", Reason: "DeadlineExceeded"})))},
		{"is being removed", oneOf(web(trouble(model.Trouble{Kind: "Removing", Text: "deleted"})))},
		{"is starting", oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Text: "pulling"})))},
		{"has unknown status", oneOf(web(dead(corev1.PodUnknown)))},
		{"is ready, with problems", oneOf(web(func(p *why.Pod) { p.LogsDropped = "its output is lost" }))},
		{"is ready, with problems", oneOf(web(func(p *why.Pod) { p.Rollback.Text = "revision 1 runs" }))},
		{"has unknown status: monopod is not running", oneOf(web(), func(f *why.Facts) { f.Daemon = "no socket" })},
	} {
		got := why.One(tt.f, "default", "web")
		if text := got.Chains[len(got.Chains)-1].Text; text != "default/web "+tt.want {
			t.Errorf("%q, want %q", text, tt.want)
		}
	}
}

func TestWhatRunsOfAPod(t *testing.T) {
	since := func(p *why.Pod, d time.Duration) {
		p.Object.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(now.Add(-d))
	}
	for want, c := range map[string]change{
		"app (registry.example/app:1, running for 60m)": func(*why.Pod) {},
		"app (registry.example/app:1, running for 1s)":  func(p *why.Pod) { since(p, time.Millisecond) },
		"app (registry.example/app:1, running for 3d)":  func(p *why.Pod) { since(p, 72*time.Hour) },
		"app (registry.example/app:1, running for 3h, restarted once)": func(p *why.Pod) {
			since(p, 3*time.Hour)
			p.Object.Status.ContainerStatuses[0].RestartCount = 1
		},
		"only app (registry.example/app:1, running for 60m)": func(p *why.Pod) {
			p.Object.Spec.Containers = append(p.Object.Spec.Containers, corev1.Container{Name: "b"})
		},
		"nothing":                               waits("ContainerCreating"),
		"unknown: the runtime does not respond": func(p *why.Pod) { gone(p); p.Object.Status.Phase = corev1.PodUnknown },
	} {
		if got := texts(chainOf(oneOf(web(c))), why.Runs); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWhereAPodIsWritten(t *testing.T) {
	for want, c := range map[string]change{
		"/etc/monopod/manifests/web.yaml:3":             func(*why.Pod) {},
		"a manifest that is no longer known":            func(p *why.Pod) { p.Where = "" },
		"/etc/monopod/manifests/web.yaml:3, revision 4": func(p *why.Pod) { p.Revision = 4 },
		"/etc/monopod/manifests/web.yaml:3, created by Deployment web": func(p *why.Pod) {
			p.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web"}}
		},
		"https://fleet/x:3, revision 2, created by Job once": func(p *why.Pod) {
			p.Where, p.Revision = "https://fleet/x:3", 2
			p.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "once"}}
		},
	} {
		if got := texts(chainOf(oneOf(web(c))), why.Wanted); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	nowhere := chainOf(oneOf(web(ended(0, "Completed", ""), func(p *why.Pod) { p.Where = "" })))
	wantStep(t, nowhere, why.Action, "Never in the manifest")
	applied := chainOf(oneOf(web(ended(0, "Completed", ""), func(p *why.Pod) { p.Where = "/applied/pod.default.web.yaml:1" }), func(f *why.Facts) { f.Places.Applied = "/applied" }))
	wantStep(t, applied, why.Action, "in the applied manifest; then re-apply it")
}

func TestExitCodesInWords(t *testing.T) {
	for code, want := range map[int32]string{
		0:   "with exit code 0, but should keep running",
		1:   "with exit code 1; restarted",
		126: "with exit code 126 (in a shell: found, but not executable)",
		127: "with exit code 127 (in a shell: command not found)",
		129: "by SIGHUP (exit code 129)",
		134: "by SIGABRT (exit code 134)",
		137: "by SIGKILL (exit code 137)",
		139: "by SIGSEGV (exit code 139)",
		143: "by SIGTERM (exit code 143)",
		200: "with exit code 200; restarted",
		255: "with exit code 255; restarted",
	} {
		c := chainOf(oneOf(web(ended(code, "Error", ""))))
		wantStep(t, c, why.Cause, want)
		wantStep(t, c, why.Cause, "12s ago")
		wantStep(t, c, why.Cause, "restarted 4 times")
		wantStep(t, c, why.Next, "restart in 68s")
		reason := cause.Exited
		if strings.Contains(want, "SIG") {
			reason = cause.Signaled
		}
		if c.Reason != reason {
			t.Errorf("%d: %s, want %s", code, c.Reason, reason)
		}
	}
}

func TestContainersThatTheAgentEnded(t *testing.T) {
	for stopped, want := range map[string]struct {
		reason       cause.Kind
		text, advice string
	}{
		"LivenessProbe":      {cause.ProbeFailed, "because its liveness probe failed", "or correct spec.containers[0].livenessProbe in"},
		"StartupProbe":       {cause.ProbeFailed, "because its startup probe did not succeed in time", "or correct spec.containers[0].startupProbe in"},
		"PostStartHookError": {cause.Hook, "because its postStart hook failed", "correct spec.containers[0].lifecycle.postStart in"},
	} {
		c := chainOf(oneOf(web(ended(143, "Error", ""), func(p *why.Pod) {
			p.StoppedFor = map[string]string{"app": stopped}
			p.Events = []string{"12:00 Unhealthy"}
		})))
		wantStep(t, c, why.Cause, want.text)
		wantStep(t, c, why.Action, want.advice)
		if c.Reason != want.reason || len(texts(c, why.Events)) != 1 {
			t.Errorf("%s: %s, %q", stopped, c.Reason, c.Steps)
		}
	}
}

func TestMemoryThatRanOut(t *testing.T) {
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	for name, tt := range map[string]struct {
		change      change
		cause, next string
	}{
		"of the container": {func(p *why.Pod) { p.Object.Spec.Containers[0].Resources = limits }, "its memory limit is 64Mi (spec.containers[0].resources.limits.memory)", "raise spec.containers[0].resources"},
		"of the pod":       {func(p *why.Pod) { p.Object.Spec.Resources = &limits }, "the memory limit of the pod is 64Mi (spec.resources.limits.memory)", "raise spec.resources.limits.memory"},
		"of the machine":   {func(*why.Pod) {}, "this machine ran out of memory", "free memory on this machine"},
	} {
		c := chainOf(oneOf(web(ended(137, "OOMKilled", ""), tt.change)))
		wantStep(t, c, why.Cause, tt.cause)
		wantStep(t, c, why.Action, tt.next)
		if c.Reason != cause.OutOfMemory {
			t.Errorf("%s: %s", name, c.Reason)
		}
	}
}

func TestPortsOfTheHostThatAreTaken(t *testing.T) {
	host := func(p *why.Pod) { p.Object.Spec.HostNetwork = true }
	taken := ended(1, "Error", "", "listen tcp :8080: bind: address already in use")
	vague := ended(1, "Error", "", "bind: Address already in use")
	by := func(l why.Listener) change { return func(p *why.Pod) { p.Listeners = append(p.Listeners, l) } }
	nginx := why.Listener{Protocol: "TCP", Port: 8080, PID: 42, Name: "nginx"}
	inPod := nginx
	inPod.Pod, inPod.Container, inPod.IP = "default/db", "c", "127.0.0.1"
	other := web(func(p *why.Pod) { p.Object.Name, p.Where = "db", "/m/db.yaml:1" })
	for name, tt := range map[string]struct {
		changes    []change
		cause, act string
	}{
		"a network of its own":     {[]change{taken}, "another process in the pod uses port 8080", "change the port of one of the pod's programs"},
		"no port in the output":    {[]change{vague}, "another process in the pod uses the port", "change the port of one of the pod's programs"},
		"a process has it":         {[]change{taken, host, by(nginx)}, "port 8080/TCP of this machine is used by nginx (pid 42)", "stop nginx (pid 42)"},
		"a pod has it":             {[]change{taken, host, by(inPod)}, "port 127.0.0.1:8080/TCP of this machine is used by nginx (pid 42) of container c of pod default/db", "change the port of pod default/db or of this one (defined in /m/db.yaml:1)"},
		"it is free again":         {[]change{taken, host}, "port 8080 is or was in use on this machine", "ss -ltnp"},
		"a listener, not the text": {[]change{ended(1, "Error", "", "cannot start"), host, by(nginx)}, "possible cause", "stop nginx (pid 42), or change the port of the pod"},
	} {
		f := oneOf(web(tt.changes...))
		f.Pods = append(f.Pods, other)
		c := chainOf(f)
		if c.Reason != cause.HostPortProcess {
			t.Errorf("%s: %s", name, c.Reason)
		}
		wantStep(t, c, why.Cause, tt.cause)
		wantStep(t, c, why.Action, tt.act)
	}
}

func TestProbeTargetsInWords(t *testing.T) {
	for want, h := range map[string]corev1.ProbeHandler{
		"the readiness probe of container app (GET / on port http) has not":    {HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}},
		"the readiness probe of container app (GET /up on port 80) has not":    {HTTPGet: &corev1.HTTPGetAction{Path: "/up", Port: intstr.FromInt32(80)}},
		"the readiness probe of container app (TCP port 5432) has not":         {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(5432)}},
		"the readiness probe of container app (gRPC port 9000) has not":        {GRPC: &corev1.GRPCAction{Port: 9000}},
		"the readiness probe of container app (command pg_isready -q) has not": {Exec: &corev1.ExecAction{Command: []string{"pg_isready", "-q"}}},
		"the readiness probe of container app has not":                         {},
	} {
		c := chainOf(oneOf(web(probed("Readiness", "", "", 0), func(p *why.Pod) { p.Object.Spec.Containers[0].ReadinessProbe.ProbeHandler = h })))
		wantStep(t, c, why.Cause, want)
	}
	for fault, want := range map[cause.Fault]string{
		cause.Refused: "to a port that the program serves", cause.NotFound: "does not serve that path", cause.TimedOut: "raise timeoutSeconds",
		cause.NoProgram: "does not exist in the image", "": "check the output of the program (monopod logs -n default web -c app)",
	} {
		c := chainOf(oneOf(web(probed("Liveness", "no", fault, 2))))
		wantStep(t, c, why.Action, want)
		wantStep(t, c, why.Cause, "(2 times in a row; 3 count): no")
		wantStep(t, c, why.Next, "next probe in 4s; the container is restarted")
	}
	stopping := chainOf(oneOf(web(probed("Liveness", "no", "", 3), func(p *why.Pod) { p.Trouble.Stopping = true })))
	wantStep(t, stopping, why.Next, "the container is being stopped")
	unknown := chainOf(oneOf(web(probed("Startup", "", "", 0), func(p *why.Pod) { p.Probes, p.Trouble.Cause.Kind = nil, cause.ProbeFailed })))
	wantStep(t, unknown, why.Cause, "has failed")
	wantStep(t, unknown, why.Next, "the container counts as started once it succeeds")
}

func TestPortsThatARefusedProbeMisses(t *testing.T) {
	tcp := func(ip string, port int, pod string) why.Listener {
		return why.Listener{Protocol: "TCP", IP: ip, Port: port, Pod: pod}
	}
	for want, all := range map[string][]why.Listener{
		"nothing listens there now":                                             {{Protocol: "UDP", Port: 53}, tcp("", 80, "default/other")},
		"the programs of the pod listen on 80/TCP, [::]:443/TCP":                {tcp("", 80, ""), tcp("::", 443, "default/web"), tcp("127.0.0.1", 9, "")},
		"listen on 127.0.0.1:80/TCP, [::1]:81/TCP only, which is not reachable": {tcp("127.0.0.1", 80, ""), tcp("::1", 81, "")},
	} {
		wantStep(t, chainOf(oneOf(web(probed("Readiness", "refused", cause.Refused, 1, all...)))), why.Cause, want)
	}
}

func TestImagesThatAreAlwaysLookedUp(t *testing.T) {
	always := func(p *why.Pod) { p.Object.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways }
	down := pulling(cause.Cause{Kind: cause.RegistryUnreachable, Detail: "refused"})
	const policy = "set spec.containers[0].imagePullPolicy: IfNotPresent"
	wantStep(t, chainOf(oneOf(web(down, always))), why.Action, policy)
	wantStep(t, chainOf(oneOf(web(down, always))), why.Action, "; if it is missing, put its archive (docker save) into /var/lib/monopod/images")
	bare := chainOf(oneOf(web(down, always), func(f *why.Facts) { f.Places = why.Places{} }))
	wantStep(t, bare, why.Action, policy)
	if got := texts(bare, why.Action); strings.Contains(strings.Join(got, "\n"), "docker save") {
		t.Errorf("advice about a directory that is not configured: %q", got)
	}
	wantStep(t, chainOf(oneOf(web(pulling(cause.Cause{Kind: cause.ImageUnauthorized})), func(f *why.Facts) { f.Places.Logins = "" })), why.Action, "set registryConfig")
	wantStep(t, chainOf(oneOf(web(down))), why.Action, "put its archive (docker save) into /var/lib/monopod/images")
	if got := texts(chainOf(oneOf(web(down))), why.Action); strings.Contains(strings.Join(got, "\n"), "imagePullPolicy") {
		t.Errorf("another policy would not help: %q", got)
	}
}

func TestProgramsThatCannotBeStarted(t *testing.T) {
	c := cause.Cause{Kind: cause.CommandNotFound, Container: "app", Program: "/srv"}
	command := func(p *why.Pod) { p.Object.Spec.Containers[0].Command = []string{"/srv"} }
	for name, tt := range map[string]struct {
		fault      cause.Fault
		changes    []change
		cause, act string
	}{
		"the command":         {"", []change{command}, `the program "/srv" does not exist in the image registry.example/app:1`, "correct spec.containers[0].command"},
		"the arguments":       {"", nil, `the program "/srv" does not exist in the image registry.example/app:1`, "correct spec.containers[0].args"},
		"it is no program":    {cause.NotExecutable, nil, `the program "/srv" is not executable in the image registry.example/app:1`, "correct spec.containers[0].args"},
		"a container unknown": {"", []change{func(p *why.Pod) { p.Object.Spec.Containers[0].Name = "b" }}, "does not exist in its image", "correct spec.args"},
	} {
		c.Fault = tt.fault
		got := chainOf(oneOf(web(append([]change{failing("RunContainerError", c)}, tt.changes...)...)))
		if got.Reason != cause.CommandNotFound {
			t.Errorf("%s: %s", name, got.Reason)
		}
		wantStep(t, got, why.Cause, tt.cause)
		wantStep(t, got, why.Action, tt.act)
		wantStep(t, got, why.Next, "retry in 8s; failed 2 times in a row")
	}
}

func TestKeysThatAreMissing(t *testing.T) {
	c := cause.Cause{Kind: cause.MissingKey, Container: "app", Object: cause.Object{Kind: cause.ConfigMap, Name: "settings"}, Key: "colr"}
	has := func(keys ...string) why.Object {
		return why.Object{Kind: "ConfigMap", Namespace: "default", Name: "settings", Where: "/m/c.yaml:1", Keys: keys}
	}
	p := web(failing("CreateContainerConfigError", c))
	wantStep(t, chainOf(oneOf(p)), why.Action, "add the key, or correct its name in /etc/monopod/manifests/web.yaml:3")
	found := chainOf(oneOf(p, objects(has("size", "color"))))
	wantStep(t, found, why.Cause, "uses key colr of ConfigMap settings, which has no such key (/m/c.yaml:1)")
	wantStep(t, found, why.Action, "did you mean color?")
	wantStep(t, found, why.Action, "add the key to /m/c.yaml:1 (existing keys: color, size)")
	wantStep(t, chainOf(oneOf(p, objects(has()))), why.Action, "(existing keys: none)")
}

func TestObjectsThatAreNoPods(t *testing.T) {
	labeled := func(name, app string) why.Pod {
		return web(func(p *why.Pod) { p.Object.Name, p.Object.Labels = name, map[string]string{"app": app} })
	}
	for _, tt := range []struct {
		object why.Object
		text   string
		kind   why.Kind
		steps  []string
	}{
		{why.Object{Kind: "CronJob"}, "default/shop is a CronJob and has no pods now", why.Next, []string{"`monopod describe cronjob/shop -n default` shows its next run"}},
		{why.Object{Kind: "ConfigMap"}, "default/shop is a ConfigMap; it has no pods", why.Action, []string{"`monopod describe configmap/shop -n default` shows it"}},
		{why.Object{Kind: "Deployment"}, "default/shop is a Deployment and has no pods now", why.Action, []string{"`monopod describe deployment/shop -n default` shows its desired replicas and their state"}},
		{why.Object{Kind: "Service"}, "default/shop is a Service that selects 0 pods", why.Action, nil},
		{why.Object{Kind: "Service", Selector: map[string]string{"app": "a"}}, "default/shop is a Service that selects 2 pods", why.Action, []string{"`monopod why -n default x`", "`monopod why -n default z`"}},
		{why.Object{Kind: "Service", Selector: map[string]string{"app": "b"}}, "default/shop is a Service that selects 1 pod", why.Action, []string{"`monopod why -n default y`"}},
	} {
		tt.object.Namespace, tt.object.Name, tt.object.Where = "default", "shop", "/m/shop.yaml:7"
		f := why.Facts{Now: now, Pods: []why.Pod{labeled("z", "a"), labeled("y", "b"), labeled("x", "a")}, Objects: []why.Object{tt.object}}
		a := why.One(f, "default", "shop")
		c := a.Chains[0]
		if !a.Fine || a.Text != tt.text || c.Input != "/m/shop.yaml" || !slices.Equal(texts(c, tt.kind), tt.steps) {
			t.Errorf("%s: %q, %s, %q", tt.object.Kind, a.Text, c.Input, texts(c, tt.kind))
		}
	}
}

func TestWorkloadIsSummedUp(t *testing.T) {
	owned := func(name string, changes ...change) why.Pod {
		return web(append(changes, func(p *why.Pod) {
			p.Object.Name = name
			p.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "shop"}}
		})...)
	}
	for want, pods := range map[string][]why.Pod{
		"all is fine: 2 pods":      {owned("shop-a"), owned("shop-b")},
		"1 of 2 pods is not fine":  {owned("shop-a"), owned("shop-b", ended(1, "Error", ""))},
		"2 of 2 pods are not fine": {owned("shop-a", unready), owned("shop-b", unready)},
		"default/shop-a is fine":   {owned("shop-a"), web()},
	} {
		a := why.One(why.Facts{Now: now, Pods: pods}, "default", "shop")
		if a.Text != want || a.Fine == strings.Contains(want, "not fine") {
			t.Errorf("%q, want %q", a.Text, want)
		}
	}
}

func TestNamesThatAreNotKnown(t *testing.T) {
	ignored := model.Input{Input: "/m/web.yaml.bak", State: model.InputIgnored, Errors: []string{"its name ends in .bak"}}
	many := make([]model.Input, 12)
	for i := range many {
		many[i] = model.Input{Input: fmt.Sprintf("/m/%d.yaml", i), State: model.InputAccepted}
	}
	down := why.One(why.Facts{Now: now, Daemon: "no socket"}, "default", "web")
	if c := down.Chains[1]; c.Reason != cause.DaemonDown || c.Text != "default/web is unknown: monopod is not running" || down.Fine {
		t.Errorf("without a daemon: %+v", down)
	}
	a := why.One(why.Facts{Now: now, Inputs: append(many, ignored), Places: why.Places{Manifests: "/m"}}, "default", "x")
	steps := a.Chains[0].Steps
	if lines := steps[0].Lines; len(lines) != 9 || lines[0] != "/m/0.yaml (accepted)" || !strings.HasPrefix(lines[8], "and more") {
		t.Errorf("inputs %q", lines)
	}
	wantStep(t, a.Chains[0], why.Action, "list existing pods with `monopod get pods`")
	wantStep(t, a.Chains[0], why.Action, "to create it, put a manifest into /m")
	wantStep(t, why.One(why.Facts{Now: now, Inputs: []model.Input{ignored}}, "default", "web").Chains[0], why.Action, "/m/web.yaml.bak is ignored: its name ends in .bak")
	near := why.Facts{Now: now, Named: []why.Object{{Kind: "Pod", Namespace: "default", Name: "webb", Where: "/m/x.yaml:1"}, {Kind: "Secret", Namespace: "default", Name: "weba"}}}
	wantStep(t, why.One(near, "default", "web").Chains[0], why.Action, "did you mean webb?")
	refused := why.Facts{Now: now, Named: []why.Object{{Kind: "Pod", Namespace: "default", Name: "web", Where: "/m/x.yaml:1"}}}
	wantStep(t, why.One(refused, "default", "web").Chains[0], why.Cause, "the file is refused")
}

func TestOperationsThatTakeLong(t *testing.T) {
	inProgress := func(p *why.Pod) {
		p.Trouble = model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: starting"}
	}
	for _, tt := range []struct {
		name   string
		doing  change
		reason cause.Kind
		cause  string
		next   string
	}{
		{"a moment", doing("StartContainer", 500*time.Millisecond), cause.InProgress, "container app: starting", "no problem: it continues as soon as that is done"},
		{"a while", doing("StartContainer", 3*time.Second), cause.InProgress, "the container runtime is starting container app, started 3s ago", "after 10s, `monopod why` shows what to check"},
		{"far too long", doing("StopContainer", 30*time.Second), cause.Stalled, "the container runtime is stopping container app, started 30s ago (StopContainer)", "it is aborted in 90s and retried"},
		{"the network", phase("CreateSandbox", "set up network", 15*time.Second), cause.Stalled, "the network of the pod is being set up, started 15s", "it is aborted in 105s"},
		{"a sandbox", doing("ReviveSandbox", 15*time.Second), cause.Stalled, "the container runtime is starting the pod", "it is aborted in 105s"},
		{"volumes", phase("CreateContainer", "prepare volumes", 5*time.Minute), cause.Stalled, "the volumes of container app are being prepared", "it is aborted now"},
		{"anything else", doing("RecordPod", 11*time.Second), cause.Stalled, "the container runtime is processing the pod", "it is aborted in 109s"},
	} {
		c := chainOf(oneOf(web(waits("ContainerCreating"), inProgress, tt.doing)))
		if c.Reason != tt.reason {
			t.Errorf("%s: %s, want %s", tt.name, c.Reason, tt.reason)
		}
		wantStep(t, c, why.Cause, tt.cause)
		wantStep(t, c, why.Next, tt.next)
	}
	again := chainOf(oneOf(web(ended(3, "Error", ""), inProgress)))
	wantStep(t, again, why.Cause, "container app exited 12s ago with exit code 3")
}

func TestRemovedPods(t *testing.T) {
	deleted := func(d time.Duration) change {
		return func(p *why.Pod) { at := metav1.NewTime(now.Add(d)); p.Object.DeletionTimestamp = &at }
	}
	removing := func(reason string, count int) change {
		return trouble(model.Trouble{Kind: "Removing", Reason: reason, Count: count, Text: "its manifest is gone"})
	}
	for want, changes := range map[string][]change{
		"remaining containers are killed in 20s":                    {removing("", 0), deleted(20 * time.Second)},
		"its grace period is over: remaining containers are killed": {removing("", 0), deleted(-time.Second)},
		"no action is needed unless this takes minutes":             {removing("Teardown", 0)},
		"retry in 8s; failed 3 times":                               {removing("Teardown", 3), next(8 * time.Second)},
		"retry as soon as something changes":                        {removing("Teardown", 1)},
	} {
		c := chainOf(oneOf(web(changes...)))
		wantStep(t, c, why.Next, want)
		wantStep(t, c, why.Cause, "it is no longer wanted: its manifest is gone")
	}
}

func TestEvictedPodsAndTheirReturn(t *testing.T) {
	evicted := func(reason, resource string, changes ...change) why.Facts {
		all := append([]change{waits(""), trouble(model.Trouble{
			Kind: "Failed", Reason: reason, Message: "too much", At: now.Add(-time.Minute), Cause: cause.Cause{Resource: resource},
		}), next(9 * time.Second)}, changes...)
		return oneOf(web(all...))
	}
	for name, tt := range map[string]struct {
		f               why.Facts
		reason          cause.Kind
		cause, next, do string
	}{
		"its own limit": {evicted("Evicted", ""), cause.Evicted, "60s ago because it used too much disk space: too much", "it is recreated in 9s with empty volumes", "raise the limit"},
		"the machine":   {evicted("Evicted", "memory"), cause.Evicted, "because the machine ran low on a resource", "it is recreated in 9s", "monopod.dev/protected"},
		"a better pod":  {evicted("Preempting", ""), cause.Preempted, "it was preempted 60s ago: too much", "it is recreated in 9s", "give it a higher priority"},
		"it still runs": {evicted("Evicted", "", func(p *why.Pod) { p.Object.Status = web().Object.Status }), cause.Evicted, "too much disk space", "remaining containers are being stopped", "raise the limit"},
		"only once":     {evicted("Evicted", "", func(p *why.Pod) { p.Object.Spec.RestartPolicy = corev1.RestartPolicyNever }), cause.Evicted, "too much", "it is not recreated", "raise the limit"},
		"of a cluster": {evicted("Evicted", "", func(p *why.Pod) {
			p.Object.Annotations = map[string]string{"kubernetes.io/config.source": "apiserver"}
		}), cause.Evicted, "too much", "it stays Failed", "raise the limit"},
	} {
		c := chainOf(tt.f)
		if c.Reason != tt.reason {
			t.Errorf("%s: %s", name, c.Reason)
		}
		wantStep(t, c, why.Cause, tt.cause)
		wantStep(t, c, why.Next, tt.next)
		wantStep(t, c, why.Action, tt.do)
	}
}

func TestAboutAsksForOneOrAll(t *testing.T) {
	f := oneOf(web(ended(1, "Error", "")))
	f.Pods = append(f.Pods, web(func(p *why.Pod) { p.Object.Name = "db" }))
	if a := f.About("default", "db"); !a.Fine || len(a.Chains) != 1 || a.Chains[0].Pod != "default/db" {
		t.Errorf("one: %+v", a)
	}
	if a := f.About("default", ""); a.Fine || len(a.Chains) != 1 || a.Chains[0].Pod != "default/web" || a.Text != "1 of 2 pods is not fine" {
		t.Errorf("all: %+v", a)
	}
}
