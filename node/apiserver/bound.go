package apiserver

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/manifests"
)

// object names a ConfigMap or a Secret.
type object struct{ resource, namespace, name string }

func (o object) String() string { return o.resource + " " + o.namespace + "/" + o.name }

// account names a token: whose it is, for which pod, and where its pod finds it.
type account struct {
	namespace, name string
	pod             string
	uid             types.UID
	audience        string
	seconds         int64
	// secret is the Secret that is made of it.
	secret string
}

// tokenKey is the key of a token in the Secret that is made of it.
const tokenKey = "token"

// boundDocument is a pod as monopod reads it from a manifest, with the objects that it refers to and the tokens that it
// wants. What only an API server or a scheduler acts on is left out.
func boundDocument(p *corev1.Pod) (doc *corev1.Pod, objects []object, accounts []account) {
	doc = &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID, Generation: p.Generation, Labels: p.Labels, Annotations: maps.Clone(p.Annotations)},
	}
	maps.DeleteFunc(doc.Annotations, func(k, _ string) bool { return strings.HasPrefix(k, "kubernetes.io/config.") })
	p.Spec.DeepCopyInto(&doc.Spec)
	s := &doc.Spec
	// It has been scheduled, and what its service account means has been written into it.
	s.NodeName, s.NodeSelector, s.Affinity, s.TopologySpreadConstraints, s.Tolerations, s.SchedulingGates = "", nil, nil, nil, nil, nil
	s.AutomountServiceAccountToken, s.DeprecatedServiceAccount, s.EphemeralContainers = nil, "", nil
	if !strings.HasPrefix(s.PriorityClassName, "system-") { // the class is over there, its value is written down
		s.PriorityClassName = ""
	}
	r := references{pod: p, seen: map[object]bool{}}
	for _, ref := range s.ImagePullSecrets {
		r.note("secrets", ref.Name)
	}
	for _, containers := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range containers {
			r.container(&containers[i])
		}
	}
	for i := range p.Spec.EphemeralContainers { // added once the pod runs
		r.container(manifests.AsContainer(&p.Spec.EphemeralContainers[i]))
	}
	for i := range s.Volumes {
		r.volume(&s.Volumes[i])
	}
	return doc, r.objects, r.accounts
}

// references collects what a pod refers to.
type references struct {
	pod      *corev1.Pod
	seen     map[object]bool
	objects  []object
	accounts []account
}

func (r *references) note(resource, name string) {
	o := object{resource, r.pod.Namespace, name}
	if name != "" && !r.seen[o] {
		r.seen[o] = true
		r.objects = append(r.objects, o)
	}
}

func (r *references) container(c *corev1.Container) {
	for _, e := range c.EnvFrom {
		if e.ConfigMapRef != nil {
			r.note("configmaps", e.ConfigMapRef.Name)
		}
		if e.SecretRef != nil {
			r.note("secrets", e.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		if v := e.ValueFrom; v != nil && v.ConfigMapKeyRef != nil {
			r.note("configmaps", v.ConfigMapKeyRef.Name)
		} else if v != nil && v.SecretKeyRef != nil {
			r.note("secrets", v.SecretKeyRef.Name)
		}
	}
}

func (r *references) volume(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		r.note("configmaps", v.ConfigMap.Name)
	case v.Secret != nil:
		r.note("secrets", v.Secret.SecretName)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		r.note("secrets", v.ISCSI.SecretRef.Name)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			r.projection(v.Name, i, &v.Projected.Sources[i])
		}
	}
}

func (r *references) projection(volume string, i int, s *corev1.VolumeProjection) {
	switch {
	case s.ConfigMap != nil:
		r.note("configmaps", s.ConfigMap.Name)
	case s.Secret != nil:
		r.note("secrets", s.Secret.Name)
	case s.ServiceAccountToken != nil:
		t := s.ServiceAccountToken
		a := account{
			namespace: r.pod.Namespace, name: cmp.Or(r.pod.Spec.ServiceAccountName, "default"), pod: r.pod.Name, uid: r.pod.UID,
			audience: t.Audience, seconds: 3600, secret: tokenSecret(r.pod.UID, volume, i),
		}
		if t.ExpirationSeconds != nil {
			a.seconds = *t.ExpirationSeconds
		}
		r.accounts = append(r.accounts, a)
		*s = corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: a.secret}, Items: []corev1.KeyToPath{{Key: tokenKey, Path: t.Path}},
		}}
	}
}

// tokenSecret is the name of the Secret of a token. It is too unusual to be taken by chance.
func tokenSecret(pod types.UID, volume string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", pod, volume, i))
	return "monopod-token-" + hex.EncodeToString(sum[:16])
}

// plainMeta returns only the namespace and name.
func plainMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}
}

// documents returns a List of everything, and a tag that changes with the content. Notes about objects that were left out follow as
// comments.
func documents(all []any, refused []string) (body []byte, tag string, err error) {
	texts := make([]string, 0, len(all))
	for _, d := range all {
		b, err := json.Marshal(d)
		if err != nil {
			return nil, "", err
		}
		texts = append(texts, string(b))
	}
	slices.Sort(texts)
	body = []byte(`{"apiVersion":"v1","kind":"List","items":[` + strings.Join(texts, ",\n") + "]}\n")
	slices.Sort(refused)
	for i, text := range refused {
		if i == 0 {
			body = append(body, "---"...)
		}
		body = append(body, remark+strings.ReplaceAll(text, "\n", " ")...)
	}
	sum := sha256.Sum256(body)
	return body, hex.EncodeToString(sum[:]), nil
}

// remark begins a line about a pod that is left out. No line of JSON begins with it.
const remark = "\n# "

// LeftOut returns what a body of Bound says of pods that are bound to this node and cannot run here, one line each.
func LeftOut(body []byte) []string {
	at := bytes.Index(body, []byte(remark))
	if at < 0 {
		return nil
	}
	return strings.Split(strings.TrimPrefix(string(body[at:]), remark), remark)
}
