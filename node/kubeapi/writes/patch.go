package writes

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/managed"
	"monopod/node/kubeapi/patch"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/strategy"
)

// applyPatch is the media type of server-side apply.
const applyPatch = "application/apply-patch+yaml"

// patchBody reads a patch and its media type.
func (c *call) patchBody() (kind patch.Kind, body []byte, err error) {
	media, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil {
		media = c.r.Header.Get("Content-Type")
	}
	kind = patch.Kind(media)
	switch kind {
	case patch.JSON, patch.Merge, patch.Strategic, applyPatch:
	default:
		return "", nil, unsupported(media)
	}
	var errs field.ErrorList
	if kind == applyPatch && c.opts.FieldManager == "" {
		errs = append(errs, field.Required(field.NewPath("fieldManager"), "is required for apply patch"))
	}
	if kind != applyPatch && c.opts.Force {
		errs = append(errs, field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"))
	}
	if len(errs) > 0 {
		return "", nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	body, err = codec.ReadBody(c.w, c.r, patch.MaxBytes)
	return kind, body, err
}

// unsupported returns the 415 error, with kube-apiserver's text.
func unsupported(media string) error {
	text := fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %s, %s, %s, %s", patch.JSON, patch.Merge, patch.Strategic, applyPatch)
	if len(media) > 100 {
		media = media[:100]
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType, Message: text,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: fmt.Sprintf("the Content-Type is %q", media)}}},
	}}
}

func (c *call) patch() error {
	kind, body, err := c.patchBody()
	if err != nil {
		return err
	}
	if kind == applyPatch {
		return c.apply(body)
	}
	return c.store(func() (decision, error) {
		old, err := c.current()
		if err != nil {
			return decision{}, err
		}
		if old == nil {
			return decision{}, notFound(c.req)
		}
		now, err := patched(c, kind, withKind(c.k, old), body, c.k.GroupVersionKind, c.k.New())
		if err != nil {
			return decision{}, err
		}
		o, ok := now.(kinds.Object)
		if !ok {
			return decision{}, fmt.Errorf("a patch made a %T", now)
		}
		if err := strategy.SameUID(c.k, old, o); err != nil {
			return decision{}, err
		}
		return c.decideUpdate(old, o, false)
	})
}

// patched returns the result of applying a patch to an object. like is an empty object of its type.
func patched(c *call, kind patch.Kind, old runtime.Object, body []byte, gvk schema.GroupVersionKind, like runtime.Object) (runtime.Object, error) {
	doc, err := json.Marshal(old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	result, err := patch.Apply(kind, doc, body, like)
	if err != nil {
		return nil, err
	}
	now, warnings, err := codec.DecodeBytes(result, runtime.ContentTypeJSON, gvk, c.opts.Validation)
	if err != nil {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), "the patched object", err.Error())})
	}
	for _, text := range warnings {
		codec.Warn(c.w, text)
	}
	return now, nil
}

// configuration decodes an apply patch.
func configuration(c *call, body []byte) (map[string]any, error) {
	data, err := codec.JSON(body)
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := kjson.Unmarshal(data, &given); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	if given == nil {
		return nil, apierrors.NewBadRequest("error decoding YAML: an apply patch is an object")
	}
	if c.opts.Validation == metav1.FieldValidationIgnore {
		return given, nil
	}
	if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
		if c.opts.Validation == metav1.FieldValidationStrict {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", err))
		}
		codec.Warn(c.w, err.Error())
	}
	return given, nil
}

// apply implements server-side apply: it creates a missing object.
func (c *call) apply(body []byte) error {
	given, err := configuration(c, body)
	if err != nil {
		return err
	}
	if err := names(c.req, given, c.k.GroupVersionKind); err != nil {
		return err
	}
	return c.store(func() (decision, error) {
		old, err := c.current()
		if err != nil {
			return decision{}, err
		}
		if old == nil && c.req.Subresource != "" {
			return decision{}, notFound(c.req)
		}
		live := old
		if old == nil {
			if err := mayCreate(c); err != nil {
				return decision{}, err
			}
			live = c.k.New()
		}
		now, err := managed.Apply(c.k, c.req.Subresource, live, runtime.DeepCopyJSON(given), c.manager, c.opts.Force)
		if err != nil {
			return decision{}, err
		}
		if old == nil {
			now, err = strategy.Applied(c.k, c.req.Name, now)
			if err != nil {
				return decision{}, err
			}
			return c.decideCreate(now, true)
		}
		if err := strategy.SameUID(c.k, old, now); err != nil {
			return decision{}, err
		}
		return c.decideUpdate(old, now, true)
	})
}

// names checks that an applied configuration names the object of the path, and fills in missing names.
func names(req *request.Request, given map[string]any, gvk schema.GroupVersionKind) error {
	version, kind := gvk.ToAPIVersionAndKind()
	for key, want := range map[string]string{"apiVersion": version, "kind": kind} {
		have, ok := given[key]
		if !ok {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid object type: /, Kind=: %s is missing", key))
		}
		if have != want {
			return apierrors.NewBadRequest(fmt.Sprintf("%s in the body (%.100v) is not that of the path (%s)", key, have, want))
		}
	}
	meta, ok := given["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		given["metadata"] = meta
	}
	if meta["name"] == nil {
		meta["name"] = req.Name
	}
	if meta["name"] != req.Name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%.100v) does not match the name on the URL (%s)", meta["name"], req.Name))
	}
	if req.Kind.Namespaced && meta["namespace"] == nil {
		meta["namespace"] = req.Namespace
	}
	if req.Kind.Namespaced && meta["namespace"] != req.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// scale reads and writes autoscaling/v1 Scale of a workload.
func (c *call) scale() error {
	if c.req.Verb == "get" {
		old, err := c.current()
		if err != nil {
			return err
		}
		return answerScale(c, old)
	}
	change, err := c.newScale()
	if err != nil {
		return err
	}
	d, err := write(c, func() (decision, error) {
		old, err := c.current()
		if err != nil {
			return decision{}, err
		}
		if old == nil {
			return decision{}, notFound(c.req)
		}
		return change(old)
	})
	if err != nil {
		return err
	}
	o := d.answer
	if now, err := c.current(); err == nil && now != nil && !c.opts.DryRun {
		o = now
	}
	return answerScale(c, o)
}

func answerScale(c *call, o kinds.Object) error {
	if o == nil {
		return notFound(c.req)
	}
	scale, err := strategy.ScaleOf(o)
	if err != nil {
		return err
	}
	return c.format.Object(c.w, http.StatusOK, scale)
}

// newScale reads a Scale or a patch of one, and returns the function that applies it to a workload.
func (c *call) newScale() (func(old kinds.Object) (decision, error), error) {
	gvk := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	set := func(old kinds.Object, o runtime.Object) (decision, error) {
		scale, ok := o.(*autoscalingv1.Scale)
		if !ok {
			return decision{}, apierrors.NewBadRequest(fmt.Sprintf("expected a Scale, not a %T", o))
		}
		now, err := strategy.SetScale(c.k, old, scale)
		if err != nil {
			return decision{}, err
		}
		return c.decideUpdate(old, now, false)
	}
	if c.req.Verb == "update" {
		sent, _, err := codec.Decode(c.w, c.r, gvk, c.opts.Validation)
		return func(old kinds.Object) (decision, error) { return set(old, sent) }, err
	}
	kind, body, err := c.patchBody()
	if err != nil {
		return nil, err
	}
	if kind == applyPatch {
		return applyScale(c, body, gvk)
	}
	return func(old kinds.Object) (decision, error) {
		before, err := strategy.ScaleOf(old)
		if err != nil {
			return decision{}, err
		}
		now, err := patched(c, kind, before, body, gvk, &autoscalingv1.Scale{})
		if err != nil {
			return decision{}, err
		}
		return set(old, now)
	}, nil
}

// applyScale turns an Apply of a Scale into an Apply of the workload's replicas.
func applyScale(c *call, body []byte, gvk schema.GroupVersionKind) (func(old kinds.Object) (decision, error), error) {
	given, err := configuration(c, body)
	if err != nil {
		return nil, err
	}
	if err := names(c.req, given, gvk); err != nil {
		return nil, err
	}
	version, kind := c.k.ToAPIVersionAndKind()
	configuration := map[string]any{"apiVersion": version, "kind": kind, "metadata": given["metadata"]}
	if spec, ok := given["spec"].(map[string]any); ok {
		configuration["spec"] = map[string]any{"replicas": spec["replicas"]}
	}
	return func(old kinds.Object) (decision, error) {
		now, err := managed.Apply(c.k, "scale", old, runtime.DeepCopyJSON(configuration), c.manager, c.opts.Force)
		if err != nil {
			return decision{}, err
		}
		scale, err := strategy.ScaleOf(now)
		if err != nil {
			return decision{}, err
		}
		if _, err := strategy.SetScale(c.k, old, scale); err != nil { // checks the limits
			return decision{}, err
		}
		return c.decideUpdate(old, now, true)
	}, nil
}
