package tokens

import (
	"encoding/base64"
	"encoding/json"
)

// Paths of the documents with which others verify tokens, as in kube-apiserver.
const (
	ConfigurationPath = "/.well-known/openid-configuration"
	KeySetPath        = "/openid/v1/jwks"
)

// configuration is the OpenID Connect discovery document, with the fields that kube-apiserver sets.
type configuration struct {
	Issuer        string   `json:"issuer"`
	KeySet        string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// Configuration returns the OpenID Connect discovery document of an API server at a URL, as JSON.
func (i *Issuer) Configuration(server string) ([]byte, error) {
	return json.Marshal(configuration{
		Issuer: issuer, KeySet: server + KeySetPath, ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"}, Algorithms: []string{algorithm},
	})
}

// publicKey is a JSON Web Key.
type publicKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	KeyID     string `json:"kid"`
	Curve     string `json:"crv"`
	Algorithm string `json:"alg"`
	X         string `json:"x"`
	Y         string `json:"y"`
}

// KeySet returns the public key that verifies the tokens, as a JSON Web Key Set. It creates a missing key.
func (i *Issuer) KeySet() ([]byte, error) {
	key, id, err := i.load()
	if err != nil {
		return nil, err
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return nil, err
	}
	x, y := point[1:1+half], point[1+half:]
	encode := base64.RawURLEncoding.EncodeToString
	return json.Marshal(map[string][]publicKey{"keys": {{Use: "sig", Type: "EC", KeyID: id, Curve: "P-256", Algorithm: algorithm, X: encode(x), Y: encode(y)}}})
}
