package kubeapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/node/kubeapi/access"
	"monopod/node/kubeapi/codec"
	"monopod/node/kubeapi/request"
	"monopod/node/kubeapi/tokens"
)

// Issuer signs tokens: *tokens.Issuer.
type Issuer interface {
	Sign(s tokens.Subject, audiences []string, life time.Duration) (token string, expires time.Time, err error)
	// Configuration returns the OpenID Connect discovery document of a server at a URL, KeySet the JSON Web Key Set.
	Configuration(server string) ([]byte, error)
	KeySet() ([]byte, error)
}

// tokenRequest returns the kind of requests.
func tokenRequest() schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// defaultLife is the default lifetime of tokens in seconds.
const defaultLife = 3600

// token serves TokenRequests of a service account.
func (s *Server) token(w http.ResponseWriter, r *http.Request, req *request.Request) {
	if req.Verb != "create" {
		s.fail(w, r, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "serviceaccounts/token"}, req.Verb))
		return
	}
	if err := s.answerToken(w, r, req); err != nil {
		s.fail(w, r, err)
	}
}

// answerToken returns an error only if it has not written a response.
func (s *Server) answerToken(w http.ResponseWriter, r *http.Request, req *request.Request) error {
	if s.cfg.Issuer == nil {
		return apierrors.NewServiceUnavailable("token requests are disabled")
	}
	format, err := codec.Negotiate(r, req.Kind)
	if err != nil {
		return err
	}
	options, err := request.ParseWriteOptions(r.URL.Query())
	if err != nil {
		return err
	}
	o, warnings, err := codec.Decode(w, r, tokenRequest(), options.Validation)
	if err != nil {
		return err
	}
	asked, ok := o.(*authenticationv1.TokenRequest)
	if !ok {
		return apierrors.NewBadRequest("the body is not an authentication.k8s.io/v1 TokenRequest")
	}
	account, err := lookUp[*corev1.ServiceAccount](r.Context(), s, "ServiceAccount", req.Namespace, req.Name)
	if err != nil {
		return err
	}
	answer, err := completed(asked, account)
	if err != nil {
		return err
	}
	subject := tokens.Subject{Namespace: account.Namespace, ServiceAccount: tokens.Object{Name: account.Name, UID: string(account.UID)}}
	if ref := answer.Spec.BoundObjectRef; ref != nil {
		if subject.Pod, err = s.boundPod(r, account, ref); err != nil {
			return err
		}
	}
	if !options.DryRun {
		token, expires, err := s.cfg.Issuer.Sign(subject, answer.Spec.Audiences, time.Duration(*answer.Spec.ExpirationSeconds)*time.Second)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		answer.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expires)}
	}
	for _, text := range warnings {
		codec.Warn(w, text)
	}
	return format.Object(w, http.StatusCreated, answer)
}

// completed returns a request with defaults, or validation errors.
func completed(asked *authenticationv1.TokenRequest, account *corev1.ServiceAccount) (*authenticationv1.TokenRequest, error) {
	answer := asked.DeepCopy()
	kind, name := tokenRequest().GroupKind(), field.NewPath("metadata", "name")
	switch {
	case answer.Namespace != "" && answer.Namespace != account.Namespace:
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case answer.Name != "" && answer.Name != account.Name:
		return nil, apierrors.NewInvalid(kind, account.Name, field.ErrorList{field.Invalid(name, answer.Name, "must match the service account name if specified")})
	case answer.UID != "" && answer.UID != account.UID:
		return nil, apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, account.Name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", answer.UID, account.UID))
	}
	answer.Name, answer.Namespace, answer.UID, answer.Status = account.Name, account.Namespace, account.UID, authenticationv1.TokenRequestStatus{}
	answer.CreationTimestamp = metav1.Now()
	if len(answer.Spec.Audiences) == 0 {
		answer.Spec.Audiences = []string{access.Audience}
	}
	if answer.Spec.ExpirationSeconds == nil {
		answer.Spec.ExpirationSeconds = new(int64(defaultLife))
	}
	at := field.NewPath("spec", "expirationSeconds")
	var errs field.ErrorList
	seconds := *answer.Spec.ExpirationSeconds
	if seconds < int64(tokens.Shortest/time.Second) {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	} else if seconds > 1<<32 {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(kind, asked.Name, errs)
	}
	answer.Spec.ExpirationSeconds = new(min(seconds, int64(tokens.Longest/time.Second)))
	return answer, nil
}

// boundPod returns the pod to which a token is bound.
func (s *Server) boundPod(r *http.Request, account *corev1.ServiceAccount, ref *authenticationv1.BoundObjectReference) (*tokens.Object, error) {
	if ref.Kind != "Pod" || ref.APIVersion != "v1" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to type %s, %s; only v1 Pod is supported", account.Name, ref.APIVersion, ref.Kind))
	}
	pod, err := lookUp[*corev1.Pod](r.Context(), s, "Pod", account.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	name := pod.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	if name != account.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
	}
	if ref.UID != "" && ref.UID != pod.UID {
		return nil, apierrors.NewConflict(
			schema.GroupResource{Resource: "Pod"}, pod.Name,
			errors.New("the UID in the bound object reference ("+string(ref.UID)+") does not match the UID in record. The object might have been deleted and then recreated"),
		)
	}
	if err := access.AdmitAccess(access.UserOf(r.Context()), s.cfg.Policy, "get the token of", pod); err != nil {
		return nil, err
	}
	return &tokens.Object{Name: pod.Name, UID: string(pod.UID)}, nil
}
