// The style sheet of reports.
#pragma once

namespace smoe {

// Colours of series are those of Okabe and Ito, which people with colour-blindness can tell apart, lightened
// on dark pages.
inline constexpr const char* kPageStyle = R"css(
:root{--back:#fdfdfc;--text:#1d1f21;--soft:#5b6168;--line:#d9dcdf;--panel:#f3f4f5;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#b08500;--c5:#3a9bd6;--c6:#7a5195;--c7:#333;--heat:#08306b}
@media(prefers-color-scheme:dark){:root{--back:#16181a;--text:#e4e6e8;--soft:#9aa1a8;--line:#33383d;--panel:#202326;
--c0:#56b4e9;--c1:#f2894a;--c2:#3fcf9f;--c3:#e3a3c6;--c4:#e6c34a;--c5:#8cc8f0;--c6:#b79ad6;--c7:#d0d0d0;--heat:#9ad4ff}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem;max-width:76rem;background:var(--back);color:var(--text);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.25rem}
h3{font-size:1rem;margin:1.2rem 0 .4rem}.chart>h3{margin-top:.2rem}
p{max-width:60rem}.soft,.none{color:var(--soft)}
.scroll{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{color:var(--soft);font-weight:600}
td small{color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
.charts.small{grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr))}
.chart{margin:0;padding:.8rem;background:var(--panel);border-radius:.5rem;min-width:0}
.chart>svg{width:100%;height:auto;display:block}.chart.wide{max-width:58rem}
figcaption{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:var(--soft)}
figcaption span{display:inline-flex;align-items:center;gap:.35rem}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}
.tick{fill:var(--soft);font-size:12px}.name{fill:var(--soft);font-size:13px}
path{fill:none;stroke-width:2;stroke-linejoin:round}.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 4}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}path.c3{stroke:var(--c3)}
path.c4{stroke:var(--c4)}path.c5{stroke:var(--c5)}path.c6{stroke:var(--c6)}path.c7{stroke:var(--c7)}
circle.c0{fill:var(--c0)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
circle.c4{fill:var(--c4)}circle.c5{fill:var(--c5)}circle.c6{fill:var(--c6)}circle.c7{fill:var(--c7)}
rect.c0{fill:var(--c0)}rect.c1{fill:var(--c1)}rect.c2{fill:var(--c2)}rect.c3{fill:var(--c3)}
rect.c4{fill:var(--c4)}rect.c5{fill:var(--c5)}rect.c6{fill:var(--c6)}rect.c7{fill:var(--c7)}
.heat{fill:var(--heat);stroke:none}.less{fill:var(--c1)}.cells{fill:var(--back)}.scale{background:var(--back)}
.tabs>input{position:absolute;opacity:0}
.tabs>label{display:inline-block;padding:.25rem .8rem;margin:0 .3rem .6rem 0;border:1px solid var(--line);border-radius:1rem;cursor:pointer}
.tabs>input:checked+label{background:var(--text);color:var(--back)}
.tabs>input:focus-visible+label{outline:2px solid var(--c0)}
.tabs>.tab{display:none}
.tabs>input:nth-of-type(1):checked~.tab:nth-of-type(1),.tabs>input:nth-of-type(2):checked~.tab:nth-of-type(2),
.tabs>input:nth-of-type(3):checked~.tab:nth-of-type(3),.tabs>input:nth-of-type(4):checked~.tab:nth-of-type(4),
.tabs>input:nth-of-type(5):checked~.tab:nth-of-type(5),.tabs>input:nth-of-type(6):checked~.tab:nth-of-type(6),
.tabs>input:nth-of-type(7):checked~.tab:nth-of-type(7),.tabs>input:nth-of-type(8):checked~.tab:nth-of-type(8){display:block}
details{margin:.5rem 0}summary{cursor:pointer}
pre{background:var(--panel);padding:.8rem;border-radius:.5rem;overflow-x:auto;font-size:.85rem}
@media(max-width:480px){body{padding:.7rem;font-size:15px}.tick{font-size:17px}.name{font-size:18px}
.wide .tick{font-size:21px}.wide .name{font-size:22px}}
@media print{.tabs>.tab{display:block}.tabs>label{display:none}}
)css";

}  // namespace smoe
