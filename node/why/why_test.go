package why_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"monopod/internal/cause"
	"monopod/internal/model"
	"monopod/node/why"
)

var update = flag.Bool("update", false, "rewrite golden files")

// now is when all questions are asked.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// golden compares text with testdata/NAME.txt.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is another now:\n%s\nwant:\n%s", file, got, want)
	}
}

// shown is an answer as people see it, and below it what programs see.
func shown(t *testing.T, a why.Answer) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(a.Print(func(at time.Time) string { return at.Format(time.TimeOnly) }))
	fmt.Fprintf(&b, "--\nfine: %v\n", a.Fine)
	for _, c := range a.Chains {
		var kinds []string
		for _, s := range c.Steps {
			k := string(s.Kind)
			if s.Reason != "" {
				k += ":" + string(s.Reason)
			}
			kinds = append(kinds, k)
		}
		fmt.Fprintf(&b, "%s%s %s: %s\n", c.Pod, c.Input, c.Reason, strings.Join(kinds, " "))
	}
	return b.String()
}

// maker builds a healthy pod; changes make it another.
type change func(p *why.Pod)

func web(changes ...change) why.Pod {
	p := why.Pod{
		Where: "/etc/monopod/manifests/web.yaml:3",
		Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID("u")},
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{
				{Name: "app", Image: "registry.example/app:1"},
			}},
			Status: corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
				ContainerStatuses: []corev1.ContainerStatus{{
					Name: "app", Image: "registry.example/app:1", Ready: true,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-time.Hour))}},
				}},
			},
		},
	}
	for _, c := range changes {
		c(&p)
	}
	return p
}

func unready(p *why.Pod) {
	p.Object.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Object.Status.ContainerStatuses[0].Ready = false
}

// waits: none of its pods run.
func waits(reason string) change {
	return func(p *why.Pod) {
		unready(p)
		p.Object.Status.Phase = corev1.PodPending
		p.Object.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
}

// step failed and is tried again in 8 s.
func failing(reason string, c cause.Cause) change {
	return func(p *why.Pod) {
		waits(reason)(p)
		p.Trouble = model.Trouble{
			Kind: "Step", Container: c.Container, Reason: reason, Message: "step: " + c.Detail, Cause: c, Count: 2, At: now.Add(-2 * time.Second), Text: reason + ": step: " + c.Detail,
		}
		p.NextTry = now.Add(8 * time.Second)
	}
}

// ended: the container has ended and waits for its next start.
func ended(code int32, reason, message string, lines ...string) change {
	return func(p *why.Pod) {
		waits("CrashLoopBackOff")(p)
		p.Object.Status.Phase = corev1.PodRunning
		st := &p.Object.Status.ContainerStatuses[0]
		st.RestartCount = 4
		st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(now.Add(-12 * time.Second)),
		}
		p.Trouble = model.Trouble{Kind: "Exited", Container: "app", Reason: reason, Text: "container app: exited"}
		p.NextTry = now.Add(68 * time.Second)
		p.Output = map[string][]string{"app": lines}
	}
}

// gone: none of its pods run, and nothing more is known.
func gone(p *why.Pod) { p.Object.Status = corev1.PodStatus{Phase: corev1.PodPending} }

func addressed(p *why.Pod) { p.Object.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.2"}} }

// doing: an action has been under way for some time.
func doing(kind string, d time.Duration) change { return phase(kind, "", d) }

// phase: so has a part of it.
func phase(kind, name string, d time.Duration) change {
	return func(p *why.Pod) {
		p.Doing = append(p.Doing, model.Doing{Kind: kind, Container: map[bool]string{true: "app"}[strings.HasSuffix(kind, "Container")], Phase: name, Since: now.Add(-d)})
	}
}

// backAfter: the container runs again, after an end a moment ago.
func backAfter(code int32) change {
	return func(p *why.Pod) {
		st := &p.Object.Status.ContainerStatuses[0]
		st.RestartCount = 1
		st.State.Running.StartedAt = metav1.NewTime(now.Add(-5 * time.Second))
		st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", FinishedAt: metav1.NewTime(now.Add(-6 * time.Second))}
	}
}

// refused: the process of the container could not be started.
func refused(c cause.Cause) change {
	return func(p *why.Pod) { p.Refused = map[string]cause.Cause{"app": c} }
}

// endedBy: nothing was wrong with what ended last.
func endedBy(by string) change { return func(p *why.Pod) { p.EndedBy = map[string]string{"app": by} } }

func trouble(t model.Trouble) change { return func(p *why.Pod) { p.Trouble = t } }

func next(d time.Duration) change { return func(p *why.Pod) { p.NextTry = now.Add(d) } }

func spec(text string) change {
	return func(p *why.Pod) {
		if err := yaml.Unmarshal([]byte(text), &p.Object.Spec); err != nil {
			panic(err)
		}
	}
}

// pulling is a failed pull.
func pulling(c cause.Cause) change {
	c.Container, c.Image, c.Registry = "app", "registry.example/app:1", "registry.example"
	return failing("ErrImagePull", c)
}

// inApp is a cause of the container.
func inApp(kind cause.Kind, detail string) cause.Cause {
	return cause.Cause{Kind: kind, Container: "app", Detail: detail}
}

// lacks is a missing object.
func lacks(kind cause.Kind, container, object, name string) cause.Cause {
	return cause.Cause{Kind: kind, Container: container, Object: cause.Object{Kind: object, Name: name}}
}

// probed: a probe of the container says something.
func probed(kind, output string, fault cause.Fault, failures int, listeners ...why.Listener) change {
	return func(p *why.Pod) {
		unready(p)
		h := corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8081)}}
		c := &p.Object.Spec.Containers[0]
		switch kind {
		case "Readiness":
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: h}
		case "Startup":
			c.StartupProbe = &corev1.Probe{ProbeHandler: h}
		case "Liveness":
			c.LivenessProbe = &corev1.Probe{ProbeHandler: h}
		}
		p.Trouble = model.Trouble{Kind: "Probe", Container: "app", Reason: kind, Text: "container app: its probe has not succeeded", Cause: inApp(cause.ProbePending, "")}
		p.Probes = []model.Probe{{Container: "app", Kind: kind, Failures: failures, Threshold: 3, Output: output, Fault: fault, Next: now.Add(4 * time.Second)}}
		p.Listeners = listeners
	}
}

func withInit(p *why.Pod) {
	p.Object.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "registry.example/setup:1"}}
	waits("PodInitializing")(p)
}

func oneOf(p why.Pod, more ...func(*why.Facts)) why.Facts {
	f := why.Facts{Now: now, Pods: []why.Pod{p}, Places: why.Places{
		Manifests: "/etc/monopod/manifests", Logins: "/var/lib/monopod/config.json", Preload: "/var/lib/monopod/images", Config: "/etc/monopod/config.yaml",
	}}
	for _, m := range more {
		m(&f)
	}
	return f
}

func objects(all ...why.Object) func(*why.Facts) {
	return func(f *why.Facts) { f.Objects = all }
}

func TestWhatToDoAboutAPlaceThatCannotBeRead(t *testing.T) {
	for c, want := range map[cause.Cause]string{
		{Fault: cause.Redirected}:                 "set the URL in /etc/monopod/config.yaml to the target of the redirect",
		{Fault: cause.Denied}:                     "headers of the source in /etc/monopod/config.yaml",
		{Fault: cause.NotFound}:                   "has nothing at this path: correct the URL",
		{Fault: cause.Failing}:                    "contact its operator",
		{Fault: cause.File, Path: "/etc/x/token"}: "correct /etc/x/token, or its path in",
		{Fault: cause.CertificateAuthority}:       "set caFile of the source",
		{Fault: cause.CertificateName}:            "use a host name in the URL",
		{Fault: cause.CertificateExpired}:         "check the clock",
		{Fault: cause.CertificateRefused}:         "check certFile and keyFile",
		{Fault: cause.PlainHTTP}:                  "does not speak TLS",
		{Fault: cause.Lookup}:                     "/etc/resolv.conf",
		{}:                                        "check that the server is running",
	} {
		in := model.Input{Input: "https://fleet/x", State: "Unreachable", Errors: []string{"text"}, Cause: c}
		f := why.Facts{Now: now, Places: why.Places{Config: "/etc/monopod/config.yaml"}, Inputs: []model.Input{in}}
		steps := why.All(f).Chains[0].Steps
		if got := steps[len(steps)-1].Text; !strings.Contains(got, want) {
			t.Errorf("%s: %q is not in %q", c.Fault, want, got)
		}
	}
}

func TestEachCauseHasItsChain(t *testing.T) {
	elsewhere := why.Object{Kind: "ConfigMap", Namespace: "other", Name: "settings", Where: "/etc/monopod/manifests/other.yaml:1"}
	near := why.Object{Kind: "ConfigMap", Namespace: "default", Name: "settings", Where: "/etc/monopod/manifests/maps.yaml:1", Keys: []string{"color", "size"}}
	byHand := why.Rollback{Text: "revision 2 runs instead of 3 until the manifest changes: by hand", Wanted: 3, ByHand: true}
	for name, f := range map[string]why.Facts{
		"fine":               oneOf(web()),
		"fine with revision": oneOf(web(func(p *why.Pod) { p.Revision = 3 })),
		"rolled back": oneOf(web(func(p *why.Pod) {
			p.Revision, p.Rollback = 2, why.Rollback{Text: "revision 2 runs instead of 3 until the manifest changes: it was not Ready within 2m0s", Wanted: 3}
		})),
		"rolled back by hand": oneOf(web(func(p *why.Pod) { p.Rollback = byHand })),
		"rolled back with its group": oneOf(web(func(p *why.Pod) {
			p.Rollback = why.Rollback{
				Text: "revision 1 runs instead of 2 until the manifest changes: pod db of its update group: revision 2 has failed: it was not Ready within 6s", Wanted: 2, Culprit: "db",
			}
		})),
		"rolled back and crashing": oneOf(web(ended(3, "Error", "", "no settings"), func(p *why.Pod) { p.Rollback = byHand })),
		"on trial":                 oneOf(web(func(p *why.Pod) { p.Revision, p.Update = 3, "revision 3 is on trial: it must stay Ready" })),
		"on trial and crashing": oneOf(web(ended(3, "Error", "", "no settings"), func(p *why.Pod) {
			p.Revision, p.Update = 3, "revision 3 is on trial: it must become Ready in time, or it is rolled back to revision 2"
		})),
		"waits in its group": oneOf(web(func(p *why.Pod) {
			p.Update = "revision 3 waits until pod default/db, which precedes it in its update group, is Ready"
		})),
		"done": oneOf(web(waits(""), func(p *why.Pod) {
			p.Object.Status.Phase = corev1.PodSucceeded
			p.Object.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		})),

		"image not found":                          oneOf(web(pulling(cause.Cause{Kind: cause.ImageNotFound}))),
		"image unauthorized":                       oneOf(web(pulling(cause.Cause{Kind: cause.ImageUnauthorized, Answer: "401 Unauthorized"}))),
		"image denied":                             oneOf(web(pulling(cause.Cause{Kind: cause.ImageUnauthorized}))),
		"image forbidden":                          oneOf(web(pulling(cause.Cause{Kind: cause.ImageForbidden, Answer: "403 Forbidden"}))),
		"image rate limited":                       oneOf(web(pulling(cause.Cause{Kind: cause.ImageRateLimited, Answer: "429 Too Many Requests"}))),
		"image of another arch":                    oneOf(web(pulling(cause.Cause{Kind: cause.ImagePlatform}))),
		"registry sick":                            oneOf(web(pulling(cause.Cause{Kind: cause.RegistryError, Answer: "503 Service Unavailable"}))),
		"registry unknown":                         oneOf(web(pulling(cause.Cause{Kind: cause.RegistryUnknown, Server: "registry.example", Detail: "lookup registry.example on 127.0.0.53:53: no such host"}))),
		"dns server down":                          oneOf(web(pulling(cause.Cause{Kind: cause.RegistryUnknown, Fault: cause.Resolver, Server: "registry.example", Detail: "lookup registry.example on 192.0.2.53:53: dial udp 192.0.2.53:53: connect: network is unreachable"}))),
		"mirror with wrong content":                oneOf(web(pulling(cause.Cause{Kind: cause.RegistryUnreachable, Mirror: "mirror.example:5000", Server: "192.0.2.1:443", Detail: "connect: no route to host"}))),
		"proxy down":                               oneOf(web(pulling(cause.Cause{Kind: cause.RegistryUnreachable, Fault: cause.Proxy, Server: "192.0.2.8:3128", Detail: "connect: connection refused"}))),
		"registry unreachable":                     oneOf(web(pulling(cause.Cause{Kind: cause.RegistryUnreachable, Server: "192.0.2.1:443", Detail: "connect: no route to host"}))),
		"registry untrusted":                       oneOf(web(pulling(cause.Cause{Kind: cause.RegistryCertificate, Detail: "x509: certificate signed by unknown authority"}))),
		"registry without tls":                     oneOf(web(pulling(cause.Cause{Kind: cause.RegistryNotTLS}))),
		"registry stalls":                          oneOf(web(pulling(cause.Cause{Kind: cause.ImageStalled}))),
		"image fills the disk":                     oneOf(web(pulling(cause.Cause{Kind: cause.NoSpace, Fault: cause.Reserved, Detail: "the disk is too full for it: 1100 MiB are free at /var/lib/monopod/containerd, and 1200 must remain free: resource exhausted"}))),
		"image fills the disk when it is unpacked": oneOf(web(failing("ImageInspectError", cause.Cause{Kind: cause.NoSpace, Fault: cause.Reserved, Container: "app", Image: "app:1", Detail: "the disk is too full for it: 10 MiB are free at /d, and 12 must remain free: resource exhausted"}))),
		"image disk full":                          oneOf(web(pulling(cause.Cause{Kind: cause.NoSpace, Detail: "write /var/lib/monopod/x: no space left on device"}))),
		"image other":                              oneOf(web(pulling(cause.Cause{Kind: cause.ImagePull, Detail: `pull image "registry.example/app:1": failed to resolve reference "registry.example/app:1": something nobody has seen`}))),
		"image never pulled":                       oneOf(web(failing("ErrImageNeverPull", inApp(cause.ImageNeverPull, `Container image "registry.example/app:1" is not present with pull policy of Never`)))),
		"image name":                               oneOf(web(failing("InvalidImageName", inApp(cause.ImageName, `couldn't parse image name "A B": invalid reference format`)))),
		"image broken":                             oneOf(web(failing("ImageInspectError", inApp(cause.ImageBroken, `inspect image "registry.example/app:1": content digest sha256:00: not found`)))),
		"image of a volume never pulled":           oneOf(web(failing("ErrImageNeverPull", cause.Cause{Kind: cause.ImageNeverPull, Container: "app", Image: "example.test/nosuch:1", Volume: "v", Detail: `Container image "example.test/nosuch:1" is not present with pull policy of Never`}), volumeOf("example.test/nosuch:1", corev1.PullNever))),
		"image of a volume broken":                 oneOf(web(failing("ImageInspectError", cause.Cause{Kind: cause.ImageBroken, Container: "app", Image: "example.test/rules:1", Volume: "v", Detail: `volume "v": image "example.test/rules:1": content digest sha256:00: not found`}), volumeOf("example.test/rules:1", corev1.PullIfNotPresent))),
		"image that is an artifact":                oneOf(web(failing("ImageInspectError", inApp(cause.ImageArtifact, `inspect image "registry.example/app:1": it is an OCI artifact, not an image with a file system`)))),
		"image of a volume that is an artifact":    oneOf(web(failing("ImageInspectError", cause.Cause{Kind: cause.ImageArtifact, Container: "app", Image: "example.test/rules:1", Volume: "v", Detail: "it is an OCI artifact"}), volumeOf("example.test/rules:1", corev1.PullNever))),
		"image of a volume unreachable":            oneOf(web(failing("ErrImagePull", cause.Cause{Kind: cause.RegistryUnreachable, Container: "app", Image: "127.0.0.1:1/team/rules:1", Volume: "v", Registry: "127.0.0.1:1", Server: "127.0.0.1:1", Detail: "connect: connection refused"}), volumeOf("127.0.0.1:1/team/rules:1", corev1.PullAlways))),
		"image name of a volume":                   oneOf(web(failing("InvalidImageName", cause.Cause{Kind: cause.ImageName, Container: "app", Image: "127.0.0.1:1/Bad/NAME:1", Volume: "v", Detail: "invalid reference format: repository name must be lowercase"}), volumeOf("127.0.0.1:1/Bad/NAME:1", corev1.PullIfNotPresent))),
		"edit that cannot be had":                  oneOf(web(trouble(model.Trouble{Kind: "Step", Container: "app", Reason: "ErrImagePull", Cause: cause.Cause{Kind: cause.ImageNotFound, Container: "app", Image: "registry.example/app:2", Registry: "registry.example"}, Count: 1}), next(9*time.Second))),

		"missing configmap":           oneOf(web(failing("CreateContainerConfigError", lacks(cause.MissingConfigMap, "app", cause.ConfigMap, "setings"))), objects(near)),
		"missing configmap elsewhere": oneOf(web(failing("CreateContainerConfigError", lacks(cause.MissingConfigMap, "app", cause.ConfigMap, "settings"))), objects(elsewhere)),
		"missing configmap refused":   oneOf(web(failing("CreateContainerConfigError", lacks(cause.MissingConfigMap, "app", cause.ConfigMap, "settings"))), func(f *why.Facts) { f.Named = []why.Object{near} }),
		"missing key":                 oneOf(web(failing("CreateContainerConfigError", cause.Cause{Kind: cause.MissingKey, Container: "app", Object: cause.Object{Kind: cause.ConfigMap, Name: "settings"}, Key: "colr"})), objects(near)),
		"missing secret volume":       oneOf(web(failing("FailedMount", lacks(cause.MissingSecret, "", cause.Secret, "login")))),
		"missing claim":               oneOf(web(failing("FailedMount", lacks(cause.MissingClaim, "", cause.Claim, "data")))),
		"secret of another space":     oneOf(web(failing("CreateContainerConfigError", cause.Cause{Kind: cause.NotShared, Container: "app", Object: cause.Object{Kind: cause.Secret, Namespace: "shop", Name: "login"}, Owner: "applied", Reader: "fleet"}))),
		"class of another space":      oneOf(web(failing("FailedCreatePodSandBox", cause.Cause{Kind: cause.NotShared, Object: cause.Object{Kind: "RuntimeClass", Name: "wasm"}, Owner: "site", Reader: "fleet"}))),
		"claim without volume":        oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.ClaimUnbound, Detail: `PersistentVolume "disk1", which the claim names, does not exist`}))),
		"claim of another space":      oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.ClaimUnbound, Fault: cause.Owned, Owner: "applied", Reader: "fleet", Path: "/var/lib/monopod/volumes/shop/data", Detail: `the storage of claim shop/data belongs to source applied, and source fleet does not get it`}))),
		"claim of a csi volume":       oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.ClaimUnbound, Fault: cause.Unmountable, Detail: `MountVolume.SetUp failed for volume "v" : PersistentVolume "disk1", which the claim names, does not fit: its type cannot be mounted here; hostPath, local, nfs and iscsi can`}))),
		"host path":                   oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.HostPath, Path: "/srv/data", Expected: "a directory"}))),
		"no room for objects":         oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.Mount, Fault: cause.NoRoom, Detail: `MountVolume.SetUp failed for volume "v" : no room for the content of objects: the files and variables from ConfigMaps, Secrets and fields of all pods take 65000 KiB of memory, this needs 1004 more, and objectFilesMemory is 64Mi`}))),
		"volume":                      oneOf(web(failing("FailedMount", cause.Cause{Kind: cause.Mount, Detail: `MountVolume.SetUp failed for volume "nfs" : connection timed out`}))),

		"host port of a pod": oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "Held", Reason: "HostPortConflict", Message: "host port 80/TCP is taken by pod default/other", Cause: cause.Cause{Kind: cause.HostPortPod, Pod: "default/other"}})), func(f *why.Facts) {
			f.Pods = append(f.Pods, web(func(p *why.Pod) { p.Object.Name, p.Where = "other", "/etc/monopod/manifests/other.yaml:1" }))
		}),
		"uid of another pod": oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{
			Kind: "Held", Reason: "UIDConflict", Message: "metadata.uid 1-2 is already used by pod default/other for its directories and logs: remove the uid from the manifest",
			Cause: cause.Cause{Kind: cause.UIDConflict, UID: "1-2", Pod: "default/other"},
		})), func(f *why.Facts) {
			f.Pods = append(f.Pods, web(func(p *why.Pod) { p.Object.Name, p.Where = "other", "/etc/monopod/manifests/other.yaml:1" }))
		}),
		"drained":                oneOf(web(waits(""), trouble(model.Trouble{Kind: "Halted", Reason: "Drained", Message: "m", Cause: cause.Cause{Kind: cause.Drained}}))),
		"being drained":          oneOf(web(unready, trouble(model.Trouble{Kind: "Halted", Reason: "Drained", Message: "m", Cause: cause.Cause{Kind: cause.Drained}}))),
		"cordoned":               oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "NodeUnschedulable", Message: "m", Cause: cause.Cause{Kind: cause.Drained, Fault: cause.Cordoned}}))),
		"handed over":            oneOf(web(unready, trouble(model.Trouble{Kind: "Halted", Reason: "HandedOver", Message: "m", Cause: cause.Cause{Kind: cause.ShuttingDown, Fault: cause.HandedOver}}))),
		"shutting down":          oneOf(web(waits(""), trouble(model.Trouble{Kind: "Halted", Reason: "Terminated", Message: "m", Cause: cause.Cause{Kind: cause.ShuttingDown}}))),
		"too many pods":          oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "Held", Reason: "OutOfpods", Message: "maxPods (110) is reached", Cause: cause.Cause{Kind: cause.TooManyPods, Resource: "pods"}}))),
		"out of cpu":             oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000", Cause: cause.Cause{Kind: cause.OutOfResource, Resource: "cpu"}}))),
		"more cpu than there is": oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 16000, used: 0, capacity: 4000", Cause: cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge, Resource: "cpu"}}))),
		"another node":           oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "NodeAffinity", Message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: the node has no label disk=ssd", Cause: cause.Cause{Kind: cause.NodeMismatch}}))),
		"lost labels":            oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "NodeAffinity", Message: "the labels that clients have set on the node are lost; set all of them again, in one request to the Kubernetes API: the pod selects by role", Cause: cause.Cause{Kind: cause.NodeMismatch, Fault: cause.LabelsLost}}))),
		"under pressure":         oneOf(web(waits(""), trouble(model.Trouble{Kind: "Held", Reason: "Evicted", Message: "The node had condition: [MemoryPressure].", Cause: cause.Cause{Kind: cause.UnderPressure}}))),
		"preempted":              oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Preempting", Message: "Preempted in order to admit critical pod default/db", Cause: cause.Cause{Kind: cause.Preempted, Pod: "default/db"}, At: now.Add(-4 * time.Second)}), next(6*time.Second))),
		"evicted by machine":     oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Evicted", Message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.", Cause: cause.Cause{Kind: cause.Evicted, Resource: "memory"}, At: now.Add(-4 * time.Second)}), next(6*time.Second))),
		"held for a group":       oneOf(web(trouble(model.Trouble{Kind: "Held", Reason: "UpdateGroup", Message: "waits until pod default/first is ready"}))),
		"just started":           oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "Held", Reason: "Starting", Message: "the host ports of other pods are not known yet", Cause: cause.Cause{Kind: cause.InProgress}}))),
		"pod cidr":               oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.PodCIDR, Detail: "set up pod network: podCIDR 10.88.0.0/16 overlaps the route 10.0.0.0/8 by eth0; set podCIDR to a subnet that is free on this machine"}))),
		"cni plugin missing":     oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.CNIPlugin, Detail: `set up pod network: CNI plugin bridge is missing: failed to find plugin "bridge" in path [/opt/cni/bin]`}))),
		"network":                oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Network, Detail: `plugin type="bridge" failed (add): no IP addresses available in range set`}))),

		"no program":                        oneOf(web(failing("RunContainerError", cause.Cause{Kind: cause.CommandNotFound, Container: "app", Program: "nginxx"}))),
		"no such path":                      oneOf(web(ended(128, "StartError", `failed to create task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/bin/nope": stat /bin/nope: no such file or directory`), spec(`containers: [{name: app, image: a, command: [/bin/nope]}]`), refused(cause.Cause{Kind: cause.CommandNotFound, Program: "/bin/nope"}))),
		"cannot start":                      oneOf(web(ended(128, "StartError", `runc create failed: error mounting "/x" to rootfs at "/etc/hosts": read-only file system`))),
		"must not be root":                  oneOf(web(failing("CreateContainerConfigError", inApp(cause.NonRoot, `container has runAsNonRoot and image will run as root (pod: "web_default(u)", container: app)`)))),
		"runtime hangs":                     oneOf(web(waits("ContainerCreating"), addressed, trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: about to start"}), doing("StartContainer", 45*time.Second))),
		"network hangs":                     oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: about to start"}), doing("StartContainer", 44*time.Second), phase("CreateSandbox", "set up network", 45*time.Second))),
		"network takes time":                oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: about to start"}), phase("CreateSandbox", "set up network", 4*time.Second), doing("StartContainer", 4*time.Second))),
		"sandbox":                           oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Sandbox, Detail: `cgroup: write /sys/fs/cgroup/monopod/pod1/memory.max: device or resource busy`}))),
		"sandbox without users":             oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Sandbox, Fault: cause.UserNamespace, Detail: "can't set `spec.hostUsers: false`, the kernel has no id-mapped overlays"}))),
		"sandbox without a runtime":         oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Sandbox, Fault: cause.Handler, Detail: `RuntimeClass "gvisor" not found`}))),
		"sandbox of another sysctl":         oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Sandbox, Fault: cause.Sysctl, Detail: `sysctl net/core/somaxconn="x": invalid argument`}))),
		"network without a bridge":          oneOf(web(failing("CreatePodSandboxError", cause.Cause{Kind: cause.Network, Fault: cause.BridgeName, Detail: "bridge br0 cannot be used for pods: a device of that name exists and is not a bridge; set bridgeName to another name"}))),
		"network hangs again":               oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: about to start"}), doing("SetupNetwork", 45*time.Second))),
		"volumes hang":                      oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: being created"}), doing("CreateContainer", 45*time.Second), phase("CreateContainer", "prepare volumes", 45*time.Second))),
		"runtime begins":                    oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: being created"}), doing("CreateContainer", time.Second/2))),
		"removal hangs":                     oneOf(web(unready, trouble(model.Trouble{Kind: "Removing", Text: "being removed"}), doing("RemoveSandbox", 45*time.Second))),
		"teardown fails":                    oneOf(web(unready, gone, trouble(model.Trouble{Kind: "Removing", Reason: "Teardown", Count: 3, Text: "being removed: its containers have exited; removing mounts, network and cgroups for 20s, failed 3 times: unmount /x: device or resource busy"}), next(8*time.Second))),
		"runtime takes time":                oneOf(web(waits("ContainerCreating"), addressed, trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: about to start"}), doing("StartContainer", 2*time.Second))),
		"back after a drain":                oneOf(web(backAfter(143), endedBy("Agent"))),
		"stopped by a drain":                oneOf(web(ended(143, "Error", ""), endedBy("Agent"))),
		"after a reboot":                    oneOf(web(ended(255, "Unknown", ""), endedBy("Reboot"))),
		"image always asked for":            oneOf(web(failing("ErrImagePull", cause.Cause{Kind: cause.RegistryUnreachable, Container: "app", Image: "registry.example/app:1", Registry: "registry.example", Server: "192.0.2.1:443", Detail: "connect: connection refused"}), spec("containers: [{name: app, image: 'registry.example/app:1', imagePullPolicy: Always}]"))),
		"image always asked for and denied": oneOf(web(failing("ErrImagePull", cause.Cause{Kind: cause.ImageUnauthorized, Container: "app", Image: "registry.example/app:1", Registry: "registry.example", Answer: "401 Unauthorized"}), spec("containers: [{name: app, image: 'registry.example/app:1', imagePullPolicy: Always}]"))),
		"seccomp profile missing": oneOf(web(failing("CreateContainerError", cause.Cause{
			Kind: cause.ProfileUnusable, Fault: cause.NotFound, Container: "app", Object: cause.Object{Kind: cause.Seccomp, Name: "/var/lib/monopod/seccomp/p.json"},
		}))),
		"seccomp profile broken": oneOf(web(failing("CreateContainerError", cause.Cause{
			Kind: cause.ProfileUnusable, Container: "app", Object: cause.Object{Kind: cause.Seccomp, Name: "/var/lib/monopod/seccomp/p.json"},
			Detail: "cannot decode seccomp profile /var/lib/monopod/seccomp/p.json: unexpected end of JSON input",
		}))),
		"apparmor profile missing": oneOf(web(failing("CreateContainerError", cause.Cause{
			Kind: cause.ProfileUnusable, Fault: cause.NotFound, Container: "app", Object: cause.Object{Kind: cause.AppArmor, Name: "strict"},
		}))),
		"cannot be made": oneOf(web(failing("CreateContainerConfigError", inApp(cause.Config, "monopod does not have CAP_SYS_BOOT on this machine and cannot grant it")))),
		"disk full":      oneOf(web(failing("CreateContainerError", inApp(cause.NoSpace, "mkdir /var/lib/monopod/x: no space left on device")))),
		"hook":           oneOf(web(failing("PostStartHookError", inApp(cause.Hook, `run hook: command "false" exited with 1`)))),

		"exit":              oneOf(web(ended(3, "Error", "", "reading settings", "no settings"))),
		"exit silent":       oneOf(web(ended(1, "Error", ""))),
		"exit with message": oneOf(web(ended(1, "Error", "cannot reach the database\n"))),
		"exit with success": oneOf(web(ended(0, "Completed", "", "done"))),
		"exit for good": oneOf(web(ended(2, "Error", "", "bad"), func(p *why.Pod) {
			st := &p.Object.Status.ContainerStatuses[0]
			st.State, st.LastTerminationState = st.LastTerminationState, corev1.ContainerState{}
			st.RestartCount, p.NextTry, p.Object.Status.Phase, p.Object.Spec.RestartPolicy = 0, time.Time{}, corev1.PodFailed, corev1.RestartPolicyNever
			p.Trouble.Text, p.Trouble.Final = "container app: exited with 2 (Error), not restarted by restart policy Never", true
		})),
		"command not found in a shell": oneOf(web(ended(127, "Error", "", "sh: serve: not found"))),
		"signal":                       oneOf(web(ended(139, "Error", "", "about to crash"))),
		"out of memory":                oneOf(web(ended(137, "OOMKilled", "", "loading"), spec(`containers: [{name: app, image: a, resources: {limits: {memory: 64Mi}}}]`))),
		"out of memory of the machine": oneOf(web(ended(137, "OOMKilled", ""))),
		"killed by a probe": oneOf(web(ended(137, "Error", ""), func(p *why.Pod) {
			p.StoppedFor = map[string]string{"app": "LivenessProbe"}
			p.Object.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}
			p.Events = []string{"2026-11-21 11:59:40 Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500"}
		})),
		"back after a failed probe": oneOf(web(ended(0, "Completed", ""), func(p *why.Pod) {
			p.Trouble, p.NextTry, p.StoppedFor = model.Trouble{}, time.Time{}, map[string]string{"app": "LivenessProbe"}
			p.Object.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)}}}
			p.Object.Status.Conditions[0].Status = corev1.ConditionTrue
			p.Object.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-5 * time.Second))}}
		})),
		"back after a crash": oneOf(web(ended(3, "Error", "", "no settings"), func(p *why.Pod) {
			p.Trouble, p.NextTry = model.Trouble{}, time.Time{}
			p.Object.Status.Conditions[0].Status = corev1.ConditionTrue
			p.Object.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-5 * time.Second))}}
		})),
		"port taken by a process": oneOf(web(ended(1, "Error", "", "nginx: [emerg] bind() to 0.0.0.0:80 failed (98: Address in use)"), func(p *why.Pod) {
			p.Object.Spec.HostNetwork = true
			p.Listeners = []why.Listener{{Protocol: "TCP", Port: 80, PID: 421, Name: "apache2"}}
		})),
		"port taken by a container": oneOf(web(ended(1, "Error", "", "listen tcp :8080: bind: address already in use"), func(p *why.Pod) {
			p.Object.Spec.HostNetwork = true
			p.Listeners = []why.Listener{{Protocol: "TCP", Port: 8080, PID: 77, Name: "front", Pod: "default/front", Container: "c"}}
		})),
		"port taken by a process in silence": oneOf(web(ended(1, "Error", "", "cannot start"), func(p *why.Pod) {
			p.Object.Spec.HostNetwork = true
			p.Listeners = []why.Listener{{Protocol: "TCP", Port: 80, PID: 421, Name: "apache2"}}
		})),
		"port taken in the pod":    oneOf(web(ended(1, "Error", "", "Error: listen EADDRINUSE: address already in use :::3000"))),
		"port taken by nobody now": oneOf(web(ended(1, "Error", "", "bind: Address already in use"), func(p *why.Pod) { p.Object.Spec.HostNetwork = true })),

		"readiness pending":     oneOf(web(probed("Readiness", "", "", 0))),
		"readiness refused":     oneOf(web(probed("Readiness", `Get "http://10.88.0.2:8081/healthz": dial tcp 10.88.0.2:8081: connect: connection refused`, cause.Refused, 7, why.Listener{Protocol: "TCP", Port: 8080, PID: 9, Name: "app", Pod: "default/web", Container: "app"}))),
		"readiness on loopback": oneOf(web(probed("Readiness", `dial tcp 10.88.0.2:8081: connect: connection refused`, cause.Refused, 1, why.Listener{Protocol: "TCP", IP: "127.0.0.1", Port: 8081, PID: 9, Name: "app"}))),
		"readiness path":        oneOf(web(probed("Readiness", "HTTP probe failed with statuscode: 404", cause.NotFound, 2))),
		"liveness slow":         oneOf(web(probed("Liveness", `Get "http://10.88.0.2:8081/healthz": context deadline exceeded`, cause.TimedOut, 2))),
		"startup fails":         oneOf(web(probed("Startup", "HTTP probe failed with statuscode: 503", "", 5))),
		"readiness gate":        oneOf(web(unready, func(p *why.Pod) { p.Object.Status.Conditions[0].Reason = "ReadinessGatesNotReady" })),

		"init runs": oneOf(web(withInit, func(p *why.Pod) {
			p.Object.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-90 * time.Second))}}}}
		}, trouble(model.Trouble{Kind: "InProgress", Container: "setup", Text: "init container setup: running before the others", Cause: cause.Cause{Kind: cause.InProgress, Container: "setup", Detail: "running before the others"}}))),
		"init fails": oneOf(web(withInit, func(p *why.Pod) {
			p.Object.Status.InitContainerStatuses = []corev1.ContainerStatus{{
				Name: "setup", RestartCount: 1, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", FinishedAt: metav1.NewTime(now.Add(-3 * time.Second))}},
			}}
			p.Output = map[string][]string{"setup": {"no disk"}}
		}, trouble(model.Trouble{Kind: "Exited", Container: "setup", Text: "init container setup: exited"}), next(7*time.Second))),

		"evicted":          oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Evicted", Message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`, Cause: cause.Cause{Kind: cause.Evicted, Fault: cause.VolumeLimit}, At: now.Add(-4 * time.Second)}), next(6*time.Second))),
		"evicted for good": oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Evicted", Message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`, Cause: cause.Cause{Kind: cause.Evicted, Fault: cause.VolumeLimit}, At: now.Add(-4 * time.Second)}), func(p *why.Pod) { p.Object.Spec.RestartPolicy = corev1.RestartPolicyNever })),
		"evicted bound": oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Evicted", Message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.", Cause: cause.Cause{Kind: cause.Evicted, Resource: "memory"}, At: now.Add(-4 * time.Second)}), func(p *why.Pod) {
			p.Object.Annotations = map[string]string{"kubernetes.io/config.source": "apiserver"}
		})),
		"evicted just now": oneOf(web(unready, trouble(model.Trouble{Kind: "Failed", Reason: "Evicted", Message: `Usage of EmptyDir volume "v" exceeds the limit "1Mi".`, Cause: cause.Cause{Kind: cause.Evicted, Fault: cause.VolumeLimit}, At: now}), next(time.Second))),
		"deadline":         oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "DeadlineExceeded", At: now.Add(-time.Minute)}))),
		"failed otherwise": oneOf(web(waits(""), trouble(model.Trouble{Kind: "Failed", Reason: "Odd", Message: "nobody knows"}))),
		"removing late":    oneOf(web(trouble(model.Trouble{Kind: "Removing", Text: "being removed"}), func(p *why.Pod) { p.Object.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Second)} })),
		"removing":         oneOf(web(trouble(model.Trouble{Kind: "Removing", Text: "being removed: waiting for app to stop"}), func(p *why.Pod) { p.Object.DeletionTimestamp = &metav1.Time{Time: now.Add(20 * time.Second)} })),
		"kept":             oneOf(web(trouble(model.Trouble{Kind: "Kept", Text: "its manifest has not been read since the agent started; the pod continues unchanged"}))),
		"kept and refused": oneOf(web(trouble(model.Trouble{Kind: "Kept", Text: "its manifest has not been read since the agent started; the pod continues unchanged"})), func(f *why.Facts) {
			f.Inputs = []model.Input{{Source: "file", Input: "/etc/monopod/manifests/web.yaml", State: "Refused", Errors: []string{"/etc/monopod/manifests/web.yaml:3: pod shop/web: metadata.namespace: this source may not use it"}, Since: now.Add(-time.Minute)}}
		}),
		"resize":         oneOf(web(trouble(model.Trouble{Kind: "Resize", Message: "container app: memory limit (80) below current usage (90)"}), next(3*time.Second))),
		"pulling":        oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: pulling image registry.example/app:1"}))),
		"blind":          oneOf(web(trouble(model.Trouble{Kind: "Blind", Message: "observe: containerd: connection refused"}), next(time.Second)), func(f *why.Facts) { f.Places.Endpoint = "unix:///run/containerd/containerd.sock" }),
		"fine until now": oneOf(web(), func(f *why.Facts) { f.Runtime = "containerd: connection refused" }),
		"output dropped": oneOf(web(func(p *why.Pod) {
			p.LogsDropped = "the output of container app is dropped: write /var/log/pods/default_web_u/app/0.log: no space left on device"
		})),
		"network damaged": oneOf(web(func(p *why.Pod) {
			p.NetworkDamaged = "the pod network is damaged: its interface eth0 was replaced by another device: it cannot be repaired"
		})),
		"port of another monopod": oneOf(web(failing("HostPortConflict", cause.Cause{Kind: cause.HostPortPod, Pod: "default/web", Detail: "host port 80/TCP is taken by pod default/web of another monopod (/srv/two/cni)"}))),
		"port of a process":       oneOf(web(failing("HostPortConflict", cause.Cause{Kind: cause.HostPortProcess, Detail: "host port 80/TCP is taken by process nginx (pid 7) of this machine, which listens on 80/TCP"}))),
		"not mirrored":            oneOf(web(func(p *why.Pod) { p.NotMirrored = `create mirror pod: namespaces "default" not found` })),
		"not looked at":           oneOf(web(func(p *why.Pod) { p.Object.Status = corev1.PodStatus{Phase: corev1.PodUnknown} }), func(f *why.Facts) { f.Runtime = "the runtime does not respond: no space left\non device" }),
		"image not allowed":       oneOf(web(failing("ImageNotAllowed", inApp(cause.ImageNotAllowed, "imagePolicy does not allow image registry.example/app:1: no rule matches it")))),
		"image unsigned":          oneOf(web(failing("SignatureValidationFailed", inApp(cause.ImageUnsigned, `image "registry.example/app:1": signature validation failed: registry.example/app@sha256:1 has no signature`)))),
		"two broken containers": oneOf(web(failing("CreateContainerConfigError", lacks(cause.MissingConfigMap, "app", cause.ConfigMap, "sitenv")), func(p *why.Pod) {
			p.Object.Spec.Containers = append(p.Object.Spec.Containers, corev1.Container{Name: "side", Image: "registry.example/side:1", Command: []string{"slep"}})
			p.Object.Status.ContainerStatuses = append(p.Object.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: "side", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, RestartCount: 2,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 128, Reason: "StartError", FinishedAt: metav1.NewTime(now.Add(-5 * time.Second))}},
			})
			p.Refused = map[string]cause.Cause{"side": {Kind: cause.CommandNotFound, Container: "side", Program: "slep"}}
			p.More = []model.Trouble{{Kind: "Exited", Container: "side", Reason: "StartError", Text: "container side: exited"}}
		})),
		"pulling for long": oneOf(web(waits("ContainerCreating"), trouble(model.Trouble{Kind: "InProgress", Container: "app", Text: "container app: pulling image registry.example/app:1"}), func(p *why.Pod) {
			p.Pulls = []model.Pull{{Image: "registry.example/app:1", Since: now.Add(-3 * time.Minute), Done: 25_000_000, Total: 100_000_000}}
		})),
		"edit refused": oneOf(web(), func(f *why.Facts) {
			f.Inputs = []model.Input{{Input: "/etc/monopod/manifests/web.yaml", State: "Refused", Errors: []string{`/etc/monopod/manifests/web.yaml:7:5: pod default/web: spec.containers[0].imag: unknown field; did you mean "image"?`}, Pods: []string{"default/web"}, Since: now.Add(-time.Minute)}}
		}),
		"without a daemon": oneOf(web(func(p *why.Pod) {
			p.Object.Status = corev1.PodStatus{Phase: corev1.PodUnknown}
			p.Events = []string{"2026-11-21 11:58:00 Started: Started container app"}
			p.Output = map[string][]string{"app": {"ready"}}
		}), func(f *why.Facts) { f.Daemon = "/run/monopod/monopod.sock does not exist; is monopod running?" }),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, shown(t, why.One(f, "default", "web"))) })
	}
}

func TestWhatARefusedAnswerNamesIsKnown(t *testing.T) {
	named := []why.Object{{Kind: "Pod", Namespace: "shop", Name: "web", Where: "https://fleet/x:32"}}
	in := model.Input{Input: "https://fleet/x", State: "Refused", Errors: []string{"https://fleet/x:32:5: pod shop/web: no"}}
	if a := why.One(why.Facts{Now: now, Inputs: []model.Input{in}, Named: named}, "shop", "web"); a.Chains[0].Reason != cause.InputRefused || !strings.Contains(a.Text, "never accepted") {
		t.Errorf("%+v", a)
	}
}

func TestAPodThatTheAPIServerHasBoundHereInVain(t *testing.T) {
	f := why.Facts{Now: now, Unfit: []why.Unfit{{"shop", "db", "monopod cannot run this pod: spec.volumes[0].csi: not supported"}}}
	for name, a := range map[string]why.Answer{"by its name": why.One(f, "shop", "db"), "among all": why.All(f)} {
		if a.Fine || len(a.Chains) != 1 || a.Chains[0].Reason != cause.NotSupported || a.Chains[0].Pod != "shop/db" || !strings.Contains(a.Chains[0].Steps[2].Text, "volumes[0].csi") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := why.One(f, "shop", "web"); a.Chains[0].Reason != cause.UnknownName {
		t.Errorf("another one: %+v", a)
	}
}

// volumeOf adds the image volume v, as the second of the pod.
func volumeOf(ref string, policy corev1.PullPolicy) change {
	return func(p *why.Pod) {
		p.Object.Spec.Volumes = []corev1.Volume{{Name: "u"}, {Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: ref, PullPolicy: policy}}}}
	}
}

// from sets the source of a pod.
func from(source string) change {
	return func(p *why.Pod) { p.Object.Annotations = map[string]string{"kubernetes.io/config.source": source} }
}

func TestWithoutANameAllProblemsAreReported(t *testing.T) {
	broken := model.Input{Input: "/etc/monopod/manifests/new.yaml", State: "Refused", Errors: []string{"/etc/monopod/manifests/new.yaml:2: not YAML", "/etc/monopod/manifests/new.yaml:9: nor this"}, Since: now.Add(-3 * time.Minute)}
	edited := broken
	edited.Pods = []string{"default/web", "default/db"}
	silent := model.Input{Source: "fleet", Input: "https://fleet.example/pods.yaml", State: "Unreachable", Errors: []string{"Get: 503 Service Unavailable"}, Pods: []string{"default/web"}, Since: now.Add(-time.Hour)}
	copied := silent
	copied.FromDisk = now.Add(-26 * time.Hour)
	unread := model.Input{Input: "/etc/monopod/manifests/locked.yaml", State: "Unreachable", Errors: []string{"permission denied"}}
	double := model.Input{Input: "/etc/monopod/manifests/copy.yaml", State: "Conflict", Errors: []string{"copy.yaml:1: pod default/web is already defined in web.yaml:1; rename or remove one of them"}}
	appliedTwice := model.Input{Source: "applied", Input: "/var/lib/monopod/applied/pod.shop.web.yaml", State: "Conflict", Errors: []string{"pod.shop.web.yaml:1: pod shop/web is already defined in web.yaml:1"}}
	applies := func(f *why.Facts) { f.Places.Applied = "/var/lib/monopod/applied" }
	fine := model.Input{Input: "/etc/monopod/manifests/web.yaml", State: "Accepted", Pods: []string{"default/web"}}
	inputs := func(all ...model.Input) func(*why.Facts) { return func(f *why.Facts) { f.Inputs = all } }
	nothing := oneOf(web(), inputs(fine))
	nothing.Pods = nil
	two := oneOf(web(pulling(cause.Cause{Kind: cause.ImageNotFound})), inputs(broken, fine))
	two.Pods = append(two.Pods, web(func(p *why.Pod) { p.Object.Name = "db" }))
	for name, f := range map[string]why.Facts{
		"all fine":    oneOf(web(), inputs(fine)),
		"all no pods": nothing,
		"all refused": oneOf(web(), inputs(fine, broken)),
		"all edited":  oneOf(web(), inputs(edited)),
		"all unmounted": oneOf(web(from("file")), inputs(
			model.Input{Source: "file", Input: "/etc/monopod/manifests", State: "Unreachable", Errors: []string{"/etc/monopod/manifests: no such file or directory"}}, fine,
			model.Input{Source: "file", Input: "/etc/monopod/manifests/job.yaml", State: "Accepted", Pods: []string{"shop/job"}},
			model.Input{Source: "fleet", Input: "https://fleet.example/pods.yaml", State: "Accepted", Pods: []string{"shop/other"}},
		)),
		"all unmounted before a restart": oneOf(web(from("file"), trouble(model.Trouble{Kind: "Kept", Text: "its manifest has not been read since the agent started; the pod continues unchanged"})), inputs(
			model.Input{Source: "file", Input: "/etc/monopod/manifests", State: "Unreachable", Errors: []string{"/etc/monopod/manifests: no such file or directory"}},
		)),
		"all of a failed source": oneOf(web(from("fleet"), func(p *why.Pod) { p.Where = "https://fleet.example/pods.yaml:3" }), inputs(
			model.Input{Source: "fleet", Input: "fleet", State: "Unreachable", Errors: []string{"source stopped"}},
		)),
		"all refused since before a restart": oneOf(web(from("file")), inputs(
			model.Input{Source: "file", Input: "/etc/monopod/manifests/web.yaml", State: "Refused", Errors: []string{"/etc/monopod/manifests/web.yaml:2: not YAML"}, Since: now.Add(-time.Minute)},
		)),
		"all unreachable":  oneOf(web(), inputs(silent, copied, unread)),
		"all conflict":     oneOf(web(), inputs(fine, double)),
		"all applied":      oneOf(web(pulling(cause.Cause{Kind: cause.ImageNotFound}), func(p *why.Pod) { p.Where = "/var/lib/monopod/applied/pod.default.web.yaml:1" }), inputs(fine, appliedTwice), applies),
		"all pod and file": two,
		"all runtime down": oneOf(web(func(p *why.Pod) { p.Object.Status = corev1.PodStatus{Phase: corev1.PodUnknown} }), func(f *why.Facts) { f.Runtime = "containerd: no space left on device" }),
		"all blind": oneOf(web(trouble(model.Trouble{Kind: "Blind", Message: "observe: containerd: connection refused"})), func(f *why.Facts) {
			f.Places.Endpoint = "unix:///run/containerd/containerd.sock"
			f.Pods = append(f.Pods, web(func(p *why.Pod) { p.Object.Name = "db" }, trouble(model.Trouble{Kind: "Blind", Message: "observe: containerd: connection refused"})))
		}),
		"all daemon hangs": oneOf(web(), func(f *why.Facts) {
			f.Daemon, f.Hangs = "/run/monopod/monopod.sock did not answer within 30s", true
		}),
		"all another daemon hangs": oneOf(web(), func(f *why.Facts) {
			f.Daemon, f.Hangs = "/run/two.sock did not answer within 30s", true
			f.Instance = why.Instance{Config: "/etc/two.yaml", Socket: "/run/two.sock", PID: 4711}
		}),
		"all unknown daemon hangs": oneOf(web(), func(f *why.Facts) {
			f.Daemon, f.Hangs = "/run/two.sock did not answer within 30s", true
			f.Instance = why.Instance{Socket: "/run/two.sock"}
		}),
		"all another daemon down": oneOf(web(), func(f *why.Facts) {
			f.Daemon = "no daemon answers on /run/two.sock (connection refused)"
			f.Instance = why.Instance{Config: "/etc/two.yaml", Socket: "/run/two.sock"}
		}),
		"blind in another instance": oneOf(web(trouble(model.Trouble{Kind: "Blind", Message: "no space left on device"}), next(time.Second)), func(f *why.Facts) { f.Instance = why.Instance{Config: "/etc/two.yaml", Socket: "/run/two.sock"} }),
		"all daemon down":           oneOf(web(func(p *why.Pod) { p.Object.Status = corev1.PodStatus{Phase: corev1.PodUnknown} }), inputs(broken), func(f *why.Facts) { f.Daemon = "no daemon answers on /run/monopod/monopod.sock" }),
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, shown(t, why.All(f))) })
	}
}

func TestANameThatIsNotThereIsExplained(t *testing.T) {
	other := func(ns, name string) why.Pod {
		return web(func(p *why.Pod) { p.Object.Namespace, p.Object.Name = ns, name })
	}
	owned := web(func(p *why.Pod) {
		p.Object.Name = "shop-0"
		p.Object.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web"}}
	})
	file := "/etc/monopod/manifests/web.yaml"
	inFile := model.Input{Input: file, State: "Refused", Errors: []string{file + `:7:5: pod default/web: spec.containers[0].imag: unknown field; did you mean "image"?`}, Since: now.Add(-time.Minute)}
	for name, f := range map[string]why.Facts{
		"unknown near":                  oneOf(other("default", "webb")),
		"unknown in other place":        oneOf(other("shop", "web")),
		"unknown far":                   oneOf(other("default", "database")),
		"unknown while blind":           {Now: now, Runtime: "containerd does not answer"},
		"unknown of a workload":         oneOf(owned),
		"unknown but refused":           {Now: now, Inputs: []model.Input{inFile}, Named: []why.Object{{Kind: "Pod", Namespace: "default", Name: "web", Where: file + ":1"}}},
		"unknown but refused elsewhere": {Now: now, Inputs: []model.Input{inFile}, Named: []why.Object{{Kind: "Pod", Namespace: "shop", Name: "web", Where: file + ":1"}}},
		"unknown but ignored":           {Now: now, Inputs: []model.Input{{Input: "/etc/monopod/manifests/web.yaml.bak", State: "Ignored", Errors: []string{"only files that end in .yaml, .yml or .json are read"}}}},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, shown(t, why.One(f, "default", "web"))) })
	}
}

// TestTheJSONFormIsStable: programs read it.
func TestTheJSONFormIsStable(t *testing.T) {
	a := why.One(oneOf(web(ended(3, "Error", "", "no settings"))), "default", "web")
	b, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "json", string(b)+"\n")
	var back why.Answer
	if err := json.Unmarshal(b, &back); err != nil || back.Print(clock) != a.Print(clock) {
		t.Errorf("what a client reads is another: %v", err)
	}
}

func clock(t time.Time) string { return t.Format(time.TimeOnly) }

// TestEachChainEndsInSomethingToDo: whatever is wrong, there is a next step, of the agent or of a person.
func TestEachChainEndsInSomethingToDo(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 60 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if strings.Contains(text, "fine: true") || strings.HasSuffix(file, "json.txt") {
			continue
		}
		if !strings.Contains(text, "\n  next ") && !strings.Contains(text, "\n  do ") {
			t.Errorf("%s: nothing follows:\n%s", file, text)
		}
		for _, bad := range []string{"%!", "  because  \n", "<nil>", "..", " ,", "(("} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q:\n%s", file, bad, text)
			}
		}
	}
}

// TestTheDocsNameEachReason: programs rely on them.
func TestTheDocsNameEachReason(t *testing.T) {
	steps, err := os.ReadFile("why.go")
	if err != nil {
		t.Fatal(err)
	}
	causes, err := os.ReadFile("../../internal/cause/kind.go")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`Kind\s+= "(\w+)"`).FindAllStringSubmatch(string(steps)+string(causes), -1)
	for _, m := range found {
		if !strings.Contains(string(docs), "| `"+m[1]+"` |") {
			t.Errorf("docs/why.md does not say what %s is", m[1])
		}
	}
	if rows := strings.Count(string(docs), "\n| `"); rows+8 != len(found) {
		t.Errorf("docs/why.md has %d reasons, there are %d", rows, len(found)-8)
	}
}

func TestASidecarThatDoesNotRunIsMissed(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := web(func(p *why.Pod) {
		p.Object.Spec.InitContainers = []corev1.Container{{Name: "once"}, {Name: "side", RestartPolicy: &always}}
		p.Object.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "once"}, {Name: "side"}}
	})
	runs := func() string {
		for _, s := range why.One(why.Facts{Now: now, Pods: []why.Pod{p}}, "default", "web").Chains[0].Steps {
			if s.Kind == why.Runs {
				return s.Text
			}
		}
		return ""
	}
	if got := runs(); !strings.HasPrefix(got, "only app (") {
		t.Errorf("without its sidecar: %s", got)
	}
	p.Object.Status.InitContainerStatuses[1].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}
	if got := runs(); !strings.HasPrefix(got, "side (") || !strings.Contains(got, ", app (") {
		t.Errorf("with it: %s", got)
	}
}

// TestALineOfAnAnswerStaysOne: the name of a file cannot forge another one.
func TestALineOfAnAnswerStaysOne(t *testing.T) {
	a := why.Answer{Chains: []why.Chain{{Text: "x", Steps: []why.Step{{Kind: why.Cause, Text: "because", Lines: []string{"a\nfake.yaml:4: \tb"}}}}}}
	if got, want := a.Print(func(time.Time) string { return "" }), "x:\n  because  because\n             a\\nfake.yaml:4:     b\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
