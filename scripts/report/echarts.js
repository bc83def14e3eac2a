// The charts and components of ECharts that the scripts of tuner/report/html/assets use, and no others.
import { BarChart, CustomChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import {
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  ParallelComponent,
  TooltipComponent,
} from "echarts/components";
import { getInstanceByDom, init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  BarChart, CustomChart, LineChart, ParallelChart, ScatterChart, GridComponent, LegendComponent, MarkLineComponent,
  ParallelComponent, TooltipComponent, CanvasRenderer,
]);

export { getInstanceByDom, init };
