package request

import (
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/kinds"
)

const (
	// maxSelector is the size limit of both selectors of a list together, in bytes: each object is compared with all of their terms.
	maxSelector = 16 << 10
	// maxTimeout is the longest effective timeout.
	maxTimeout = 24 * time.Hour
	// maxManager is the size limit of the name of a field manager.
	maxManager = 128
)

// ListOptions are the options of list, watch and deletecollection.
type ListOptions struct {
	// Labels and Fields are never nil.
	Labels labels.Selector
	Fields fields.Selector

	ResourceVersion, ResourceVersionMatch string

	Watch, AllowBookmarks bool
	// SendInitialEvents is nil if not set.
	SendInitialEvents *bool
	// Timeout is zero if not set.
	Timeout  time.Duration
	Limit    int64
	Continue string
}

// ParseListOptions reads the options of a list, watch or deletecollection of a kind. The error is a *apierrors.StatusError: 400 for
// malformed options, 422 for contradictory ones.
func ParseListOptions(q url.Values, k *kinds.Kind) (ListOptions, error) {
	var in metav1.ListOptions
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&q, &in, nil); err != nil {
		return ListOptions{}, apierrors.NewBadRequest("invalid options: " + err.Error())
	}
	if problems := contradictions(&in); len(problems) > 0 {
		return ListOptions{}, invalid("ListOptions", problems)
	}
	o := ListOptions{
		ResourceVersion: in.ResourceVersion, ResourceVersionMatch: string(in.ResourceVersionMatch),
		Watch: in.Watch, AllowBookmarks: in.AllowWatchBookmarks, SendInitialEvents: in.SendInitialEvents,
		Limit: in.Limit, Continue: in.Continue,
	}
	if in.TimeoutSeconds != nil {
		o.Timeout = time.Duration(min(max(*in.TimeoutSeconds, 0), int64(maxTimeout/time.Second))) * time.Second
	}
	if len(in.LabelSelector)+len(in.FieldSelector) > maxSelector {
		return ListOptions{}, apierrors.NewBadRequest(fmt.Sprintf("selectors are longer than %d bytes", maxSelector))
	}
	var err error
	if o.Labels, err = labels.Parse(in.LabelSelector); err != nil {
		return ListOptions{}, apierrors.NewBadRequest("invalid labelSelector: " + err.Error())
	}
	o.Fields, err = parseFields(in.FieldSelector, k)
	return o, err
}

func parseFields(text string, k *kinds.Kind) (fields.Selector, error) {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return nil, apierrors.NewBadRequest("invalid fieldSelector: " + err.Error())
	}
	if selector.Empty() {
		return selector, nil
	}
	known := k.Fields(k.New())
	for _, r := range selector.Requirements() {
		if !known.Has(r.Field) {
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return selector, nil
}

// contradictions validates the combinations that Kubernetes validates, with the same messages: its tests compare them.
func contradictions(o *metav1.ListOptions) (problems field.ErrorList) {
	match, exact, notOlder := o.ResourceVersionMatch, metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan
	matchPath, initialPath := field.NewPath("resourceVersionMatch"), field.NewPath("sendInitialEvents")
	forbid := func(path *field.Path, text string) { problems = append(problems, field.Forbidden(path, text)) }
	if !o.Watch && o.SendInitialEvents != nil {
		forbid(initialPath, "sendInitialEvents is forbidden for list")
	}
	if o.Watch && o.SendInitialEvents != nil && match != notOlder {
		forbid(matchPath, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
	}
	if match == "" {
		return problems
	}
	if o.Continue != "" {
		forbid(matchPath, "resourceVersionMatch is forbidden when continue is provided")
	}
	if o.Watch {
		if o.SendInitialEvents == nil {
			forbid(matchPath, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
		}
		if match != notOlder {
			problems = append(problems, field.NotSupported(matchPath, match, []metav1.ResourceVersionMatch{notOlder}))
		}
		return problems
	}
	if o.ResourceVersion == "" {
		forbid(matchPath, "resourceVersionMatch is forbidden unless resourceVersion is provided")
	}
	if match != exact && match != notOlder {
		problems = append(problems, field.NotSupported(matchPath, match, []metav1.ResourceVersionMatch{exact, notOlder, ""}))
	}
	if match == exact && o.ResourceVersion == "0" {
		forbid(matchPath, `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`)
	}
	return problems
}

func invalid(options string, problems field.ErrorList) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: options}, "", problems)
}

// Matches reports whether the selectors select an object of a kind.
func (o *ListOptions) Matches(k *kinds.Kind, object kinds.Object) bool {
	if !o.Labels.Empty() && !o.Labels.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	return o.Fields.Empty() || o.Fields.Matches(k.Fields(object))
}

// WriteOptions are the options of create, update and patch. DryRun is also an option of delete and deletecollection.
type WriteOptions struct {
	DryRun       bool
	FieldManager string
	// Force makes an Apply take over fields of other managers.
	Force bool
	// Validation is how unknown and duplicate fields are treated: Ignore, Warn or Strict.
	Validation string
}

// ParseWriteOptions reads the options of a write. The error is a *apierrors.StatusError: 400 or 422.
func ParseWriteOptions(q url.Values) (WriteOptions, error) {
	var in metav1.PatchOptions
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q, &in, nil); err != nil {
		return WriteOptions{}, apierrors.NewBadRequest("invalid options: " + err.Error())
	}
	problems := validation.ValidateDryRun(field.NewPath("dryRun"), in.DryRun)
	problems = append(problems, validation.ValidateFieldValidation(field.NewPath("fieldValidation"), in.FieldValidation)...)
	if len(in.FieldManager) > maxManager { // one error for its length, not one for each character
		problems = append(problems, field.TooLong(field.NewPath("fieldManager"), "", maxManager))
	} else {
		problems = append(problems, validation.ValidateFieldManager(in.FieldManager, field.NewPath("fieldManager"))...)
	}
	if len(problems) > 0 {
		return WriteOptions{}, invalid("PatchOptions", problems)
	}
	o := WriteOptions{DryRun: len(in.DryRun) > 0, FieldManager: in.FieldManager, Validation: in.FieldValidation}
	o.Force = in.Force != nil && *in.Force
	if o.Validation == "" {
		o.Validation = metav1.FieldValidationWarn
	}
	return o, nil
}
