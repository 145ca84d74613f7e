package kubewrite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/internal/daemon/apply"
	"monopod/manifests"
	known "monopod/manifests/kinds"
	"monopod/node/kubeapi/kinds"
	"monopod/runner/workload"
	"monopod/runner/workload/revisions"
)

// maxCauses bounds the causes in a Status.
const maxCauses = 100

// manifestOf returns the document of an object as a user would write it, without server-set metadata and without status.
func manifestOf(o kinds.Object) ([]byte, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("encode a manifest: %w", err)
	}
	if job, ok := o.(*batchv1.Job); ok {
		withoutGenerated(m, job)
	}
	gvk := o.GetObjectKind().GroupVersionKind()
	m["apiVersion"], m["kind"] = gvk.GroupVersion().String(), gvk.Kind
	delete(m, "status")
	was, _ := m["metadata"].(map[string]any)
	meta := map[string]any{}
	for _, field := range []string{"name", "namespace", "labels", "annotations"} {
		if value, found := was[field]; found {
			meta[field] = value
		}
	}
	if annotations, _ := meta["annotations"].(map[string]any); annotations[revisions.AnnotationNumber] != nil { // it is computed
		if delete(annotations, revisions.AnnotationNumber); len(annotations) == 0 {
			delete(meta, "annotations")
		}
	}
	dropNulls(m)
	if _, ok := o.(*corev1.Pod); ok { // admission derives them from the class
		spec, _ := m["spec"].(map[string]any)
		delete(spec, "priority")
		delete(spec, "preemptionPolicy")
	}
	if _, ok := o.(*corev1.Pod); ok { // they are stored with the running pod
		spec, _ := m["spec"].(map[string]any)
		delete(spec, "ephemeralContainers")
	}
	m["metadata"] = meta
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode a manifest: %w", err)
	}
	return data, nil
}

// withoutGenerated removes the selector and labels from the manifest of a Job that the server has generated: they are generated again when the
// Job is read, and a manifest with them would have another template than the one that was created. What a client has chosen stays.
func withoutGenerated(m map[string]any, job *batchv1.Job) {
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	named := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name}}
	uids := []string{string(job.UID), string(workload.UID("Job", named))}
	spec, _ := m["spec"].(map[string]any)
	if s := job.Spec.Selector; s != nil && len(s.MatchExpressions) == 0 && len(s.MatchLabels) == 1 && slices.Contains(uids, s.MatchLabels[batchv1.ControllerUidLabel]) {
		delete(spec, "selector")
	}
	labels, found, _ := unstructured.NestedMap(spec, "template", "metadata", "labels")
	if !found {
		return
	}
	for _, key := range workload.GeneratedLabels() {
		if value, _ := labels[key].(string); value == job.Name || slices.Contains(uids, value) {
			delete(labels, key)
		}
	}
	if len(labels) == 0 {
		unstructured.RemoveNestedField(spec, "template", "metadata", "labels")
		return
	}
	_ = unstructured.SetNestedMap(spec, labels, "template", "metadata", "labels") // it was a map before
}

// dropNulls removes fields without a value, such as the creationTimestamp of templates.
func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			if field == nil {
				delete(v, key)
			} else {
				dropNulls(field)
			}
		}
	case []any:
		for _, element := range v {
			dropNulls(element)
		}
	}
}

// invalid returns the error for invalid objects, with one cause per problem. It names the first object.
func invalid(proposals []apply.Proposal, errs []*manifests.Error) error {
	id, ok := errs[0].ID()
	if !ok && len(proposals) > 0 {
		id = proposals[0].ID
	}
	details := &metav1.StatusDetails{Kind: id.Kind, Name: id.Name, Group: known.GroupOf(known.Known().ByKind[id.Kind].Version)}
	var texts []string
	for i, e := range errs {
		if i == maxCauses {
			texts = append(texts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		text := e.Msg
		if e.Hint != "" {
			text += "; " + e.Hint
		}
		details.Causes = append(details.Causes, metav1.StatusCause{Type: cmp.Or(metav1.CauseType(e.Type), metav1.CauseTypeFieldValueInvalid), Message: text, Field: e.Field})
		if e.Field != "" {
			text = e.Field + ": " + text
		}
		texts = append(texts, text)
	}
	all := strings.Join(texts, ", ")
	if len(texts) > 1 {
		all = "[" + all + "]"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Details: details,
		Message: fmt.Sprintf("%s %q is invalid: %s", id.Kind, id.Name, all),
	}}
}
