// What a job waits for, by the code of the reason (states.py, ReasonCode and WaitStage).
import { t } from "./words.js";

export const WAITED = {
  IMPOSSIBLE: t("waited.IMPOSSIBLE"), CONDITION: t("waited.CONDITION"), NOT_ALIVE: t("waited.NOT_ALIVE"),
  BUSY: t("waited.BUSY"), MEMORY: t("waited.MEMORY"), RESERVATION: t("waited.RESERVATION"), ADVANCE: t("waited.ADVANCE"),
  RESERVED: t("waited.RESERVED"), NO_SLOT: t("waited.NO_SLOT"), QUOTA: t("waited.QUOTA"),
  DEPENDENCY: t("waited.DEPENDENCY"), CONTAINER: t("waited.CONTAINER"), POSTPONED: t("waited.POSTPONED"),
  DEADLINE: t("waited.DEADLINE"), TOKEN: t("waited.TOKEN"), ARRAY: t("waited.ARRAY"), LIMIT: t("waited.LIMIT"),
  LAUNCH: t("waited.LAUNCH"), EXTERNAL: t("waited.EXTERNAL"), QUEUE: t("waited.QUEUE"), HOLD: t("waited.HOLD"),
  FAULT: t("waited.FAULT"), PROJECT_CLOSED: t("waited.PROJECT_CLOSED"), BUDGET: t("waited.BUDGET"),
  INTERNAL: t("waited.INTERNAL"), NEW: t("waited.NEW"), STARTING: t("waited.STARTING"),
};
