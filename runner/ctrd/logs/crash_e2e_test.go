//go:build e2e

package logs

import "testing"

func TestKilledAThousandTimesNothingIsLostOrDoubled(t *testing.T) {
	killUnderLoad(t, 600, Limits{})
}

func TestKilledHundredsOfTimesWhileFilesRotateNothingIsLostOrDoubled(t *testing.T) {
	killUnderLoad(t, 400, rotating())
}
