package e2e

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/e2e/corpus"
	"monopod/manifests"
	"monopod/manifests/decode"
)

// borrowed is one pod of the corpus: of a Pod document, or of the template of a workload.
type borrowed struct {
	file string
	// from is the kind and name of its document.
	from string
	// pod has the defaults of an API server; nil if it is not run.
	pod *manifests.Pod
	// objects are the objects in the same file.
	objects []*manifests.Object
	// why is the reason for not running it.
	why string
}

func (b *borrowed) String() string { return b.file + "\t" + b.from }

var (
	betweenDocuments = regexp.MustCompile(`(?m)^---(?:[ \t].*)?\r?$`)
	somePod          = regexp.MustCompile(`(?m)^[\s-]*["']?kind["']?:\s*["']?(Pod|Deployment|DaemonSet|ReplicaSet|ReplicationController|StatefulSet|Job|CronJob|List)\b`)
	lineNumbers      = regexp.MustCompile(`^.*?:(\d+:)+ `)
)

// borrow returns the pods of a group of the corpus. Unlike the agent, it reads documents one by one: a refused one does not affect the
// others in its file.
func borrow(t *testing.T, groups string) []*borrowed {
	t.Helper()
	files := corpus.Open(t)
	once.Do(func() { once.all = borrowAll(files) })
	var all []*borrowed
	for _, b := range once.all {
		if strings.Contains(groups, b.file[:1]) {
			all = append(all, b)
		}
	}
	return all
}

// once caches the results of borrow.
var once struct {
	sync.Once
	all []*borrowed
}

func borrowAll(files []corpus.File) []*borrowed {
	var all []*borrowed
	for _, f := range files {
		if !strings.ContainsAny(f.Name[:1], "AB") {
			continue
		}
		var objects []*manifests.Object
		first := len(all)
		for _, text := range betweenDocuments.Split(string(f.Data), -1) {
			content, err := load(f.Name, "---\n"+text)
			if err != nil {
				if somePod.MatchString(text) {
					all = append(all, refused(f, err))
				}
				continue
			}
			objects = append(objects, content.Objects...)
			for _, p := range content.Pods {
				all = append(all, &borrowed{file: f.Name, from: "Pod " + p.Object.Name, pod: p})
			}
			for _, w := range content.Workloads {
				b, claims := ofTemplate(f.Name, w)
				all, objects = append(all, b), append(objects, claims...)
			}
		}
		for _, b := range all[first:] {
			b.objects = objects
			if b.pod != nil {
				b.pod = manifests.WithRefs(b.pod, nil, manifests.NewObjects(objects))
			}
		}
	}
	return all
}

// refused is a document that cannot be run, with its first error.
func refused(f corpus.File, err error) *borrowed {
	b := &borrowed{file: f.Name, from: "a document", why: "refused"}
	if errs := manifests.Errors(err); len(errs) > 0 {
		b.from = strings.TrimSpace(errs[0].Kind + " " + errs[0].Pod)
		if errs[0].Kind == "" {
			b.from = strings.TrimSpace("Pod " + errs[0].Pod)
		}
		b.why = "refused: " + oneLine(errs[0].Error())
	}
	return b
}

// ofTemplate returns the first pod of a workload and, for a StatefulSet, its claims.
func ofTemplate(file string, w *manifests.Object) (b *borrowed, claims []*manifests.Object) {
	b = &borrowed{file: file, from: w.Kind + " " + w.Object.GetName()}
	var t corev1.PodTemplateSpec
	name := w.Object.GetName()
	switch o := w.Object.(type) {
	case *appsv1.Deployment:
		t = o.Spec.Template
	case *appsv1.DaemonSet:
		t = o.Spec.Template
	case *appsv1.ReplicaSet:
		t = o.Spec.Template
	case *appsv1.StatefulSet:
		t, name = o.Spec.Template, name+"-0"
		for i := range o.Spec.VolumeClaimTemplates {
			claim, volume := claimOf(&o.Spec.VolumeClaimTemplates[i], name, o.Namespace)
			t.Spec.Volumes = append(slices.Clone(t.Spec.Volumes), volume)
			if content, err := load(file, asJSON(claim)); err == nil {
				claims = append(claims, content.Objects...)
			}
		}
	case *batchv1.Job:
		t = o.Spec.Template
	case *batchv1.CronJob:
		t = o.Spec.JobTemplate.Spec.Template
	default:
		b.why = fmt.Sprintf("no template is known for %T", o)
		return b, nil
	}
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Name, pod.Namespace, pod.GenerateName = name, w.Object.GetNamespace(), ""
	content, err := load(file, asJSON(pod))
	if err != nil {
		b.why = "refused: " + oneLine(err.Error())
		return b, nil
	}
	b.pod = content.Pods[0]
	return b, claims
}

// claimOf returns the claim that a StatefulSet creates from a template.
func claimOf(template *corev1.PersistentVolumeClaim, pod, namespace string) (*corev1.PersistentVolumeClaim, corev1.Volume) {
	claim := template.DeepCopy()
	claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	claim.Name, claim.Namespace = template.Name+"-"+pod, namespace
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}
	return claim, corev1.Volume{Name: template.Name, VolumeSource: source}
}

// load reads documents.
func load(file, text string) (*manifests.Content, error) {
	return decode.All(file, []byte(text), decode.Options{})
}

// asJSON prints an object.
func asJSON(o any) string {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// oneLine returns a message without its location.
func oneLine(message string) string {
	return strings.ReplaceAll(lineNumbers.ReplaceAllString(message, ""), "\n", " ")
}

// fate is the expected result when the images of a pod are replaced by stand-ins with the same behavior.
type fate struct {
	phase corev1.PodPhase
	// reason is that of the pod, or that of a waiting container; if there are several, one of them must match. Empty: all containers are
	// ready, or have exited.
	reason string
	// why is the reason for the expectation.
	why string
	// serves means that the containers run forever although they look as if they exit.
	serves bool
	// asWritten means that the stand-in can run the commands of the manifest.
	asWritten bool
}

// expected returns the phase that a kubelet would report, from the manifest alone:
//   - a pod for another operating system waits, as no node fits (NodeAffinity);
//   - a RuntimeClass needs an OCI runtime that no test machine has (CreatePodSandboxError);
//   - a volume of a missing ConfigMap, Secret or claim blocks the pod (FailedMount);
//   - a variable of such an object blocks its container (CreateContainerConfigError), and the phase stays Pending;
//   - so does runAsNonRoot with an image that is known to run as root;
//   - a missing seccomp profile blocks its container (CreateContainerError);
//   - a pod that must not be restarted and has neither ports nor probes is expected to complete: Succeeded;
//   - all others run forever, and their probes succeed.
func expected(b *borrowed) fate {
	spec := &b.pod.Object.Spec
	if known, ok := exceptions()[path.Base(b.file)+" "+b.from]; ok {
		return known
	}
	if spec.RuntimeClassName != nil {
		return fate{phase: corev1.PodPending, reason: "CreatePodSandboxError", why: "there is no OCI runtime for RuntimeClass " + *spec.RuntimeClassName}
	}
	if m := (manifests.Platform{OS: "linux"}).Mismatch(spec); m != nil {
		return fate{phase: corev1.PodPending, reason: "NodeAffinity", why: m.String()}
	}
	if missing := missingVolume(b); missing != "" {
		return fate{phase: corev1.PodPending, reason: "FailedMount", why: "there is no " + missing}
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			if missing := missingVariable(b, c); missing != "" {
				return fate{phase: corev1.PodPending, reason: "CreateContainerConfigError", why: "there is no " + missing}
			}
			if rootImage(c.Image) && wantsNonRoot(spec, c) {
				return fate{phase: corev1.PodPending, reason: "CreateContainerConfigError", why: "runAsNonRoot, and the image runs as root"}
			}
			if profile := localProfile(spec, c); profile != "" {
				return fate{phase: corev1.PodPending, reason: "CreateContainerError", why: "there is no seccomp profile " + profile}
			}
		}
	}
	if !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool { return !ends(spec, &c) }) {
		return fate{phase: corev1.PodSucceeded, why: "restartPolicy " + string(spec.RestartPolicy) + ", no ports, no probes: it ends"}
	}
	return fate{phase: corev1.PodRunning, why: "it serves"}
}

// localProfile returns the seccomp profile file of a container.
func localProfile(spec *corev1.PodSpec, c *corev1.Container) string {
	var profile *corev1.SeccompProfile
	if s := spec.SecurityContext; s != nil {
		profile = s.SeccompProfile
	}
	if s := c.SecurityContext; s != nil && s.SeccompProfile != nil {
		profile = s.SeccompProfile
	}
	if profile == nil || profile.LocalhostProfile == nil {
		return ""
	}
	return *profile.LocalhostProfile
}

// ends reports whether a container is expected to complete.
func ends(spec *corev1.PodSpec, c *corev1.Container) bool {
	policy := spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	return policy != corev1.RestartPolicyAlways && len(c.Ports) == 0 &&
		c.LivenessProbe == nil && c.ReadinessProbe == nil && c.StartupProbe == nil
}

// wantsNonRoot reports whether the user of the image decides if a container may run.
func wantsNonRoot(spec *corev1.PodSpec, c *corev1.Container) bool {
	wanted, known := false, false
	if s := spec.SecurityContext; s != nil {
		wanted, known = s.RunAsNonRoot != nil && *s.RunAsNonRoot, s.RunAsUser != nil
	}
	if s := c.SecurityContext; s != nil {
		if s.RunAsNonRoot != nil {
			wanted = *s.RunAsNonRoot
		}
		known = known || s.RunAsUser != nil
	}
	return wanted && !known
}

// rootImage reports whether an image is known to run as root.
func rootImage(image string) bool {
	name := image[strings.LastIndexByte(image, '/')+1:]
	name, _, _ = strings.Cut(name, ":")
	return slices.Contains([]string{"busybox", "nginx", "debian", "alpine", "bash", "ubuntu", "fedora", "redis"}, name)
}

// missingVolume names an object that a mounted volume needs and that does not exist.
func missingVolume(b *borrowed) string {
	spec := &b.pod.Object.Spec
	mounted := map[string]bool{}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, m := range list[i].VolumeMounts {
				mounted[m.Name] = true
			}
		}
	}
	for _, v := range spec.Volumes {
		if !mounted[v.Name] {
			continue
		}
		var missing string
		switch {
		case v.ConfigMap != nil:
			missing = b.missing("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			missing = b.missing("Secret", v.Secret.SecretName, v.Secret.Optional)
		case v.PersistentVolumeClaim != nil:
			missing = b.missing("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, nil)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				switch {
				case missing != "":
				case s.ConfigMap != nil:
					missing = b.missing("ConfigMap", s.ConfigMap.Name, s.ConfigMap.Optional)
				case s.Secret != nil:
					missing = b.missing("Secret", s.Secret.Name, s.Secret.Optional)
				}
			}
		}
		if missing != "" {
			return missing
		}
	}
	return ""
}

// missingVariable names an object that a container's environment needs and that does not exist.
func missingVariable(b *borrowed, c *corev1.Container) string {
	for _, from := range c.EnvFrom {
		var missing string
		switch {
		case from.ConfigMapRef != nil:
			missing = b.missing("ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			missing = b.missing("Secret", from.SecretRef.Name, from.SecretRef.Optional)
		}
		if missing != "" {
			return missing
		}
	}
	for _, e := range c.Env {
		var missing string
		switch from := e.ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			missing = b.missing("ConfigMap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		case from.SecretKeyRef != nil:
			missing = b.missing("Secret", from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		}
		if missing != "" {
			return missing
		}
	}
	return ""
}

// missing returns "Kind name" if the file has no such object in the pod's namespace.
func (b *borrowed) missing(kind, name string, optional *bool) string {
	if optional != nil && *optional {
		return ""
	}
	for _, o := range b.objects {
		if o.Kind == kind && o.Object.GetName() == name && o.Object.GetNamespace() == b.pod.Object.Namespace {
			return ""
		}
	}
	return kind + " " + name
}

// exceptions are pods for which the rules of expected are wrong, by the base name of the file and by the document.
func exceptions() map[string]fate {
	return map[string]fate{
		"content-en-examples-pods-restart-policy-restart-all-containers.yaml Pod restart-all-containers": {
			phase: corev1.PodRunning, serves: true, why: "its container sleeps for an hour, and is not restarted",
		},
		"content-en-examples-pods-inject-envars-file-container.yaml Pod envfile-test-pod": {
			phase: corev1.PodSucceeded, asWritten: true, why: "its init container writes the file of which its container takes a variable",
		},
		"docs-admin-apparmor-hello-apparmor-pod.yaml Pod hello-apparmor": {
			phase: corev1.PodPending, reason: "AppArmor CreateContainerError",
			why: "its profile is not loaded, or the kernel has no AppArmor; a kubelet fails the latter (docs/differences.md)",
		},
		"testdata-job-1.yaml Job j-e2e-1": {
			phase: corev1.PodPending, reason: "CreateContainerConfigError",
			why: "there is no GPU: Pending in a cluster as well, where no node fits; a kubelet alone ignores devices that it does not know (docs/differences.md)",
		},
	}
}
